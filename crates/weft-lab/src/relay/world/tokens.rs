//! By which token epoll names what a world waits for.

use mio::Token;

pub(super) const TIMER: Token = Token(0);
pub(super) const FIRST_LISTENER: usize = 1;
pub(super) const FIRST_LINK: usize = 1 << 20;
