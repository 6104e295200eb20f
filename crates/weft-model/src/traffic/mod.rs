//! Traffic for testbeds: users, the two ends of their streams, and records of the results.
//!
//! A [`User`] follows a [`Model`] (bulk, web, audio, video, performance client, PrivCount's Markov models)
//! and returns what it does next: open a stream by a [`Plan`], or wait. [`ClientStream`] and
//! [`ServerStream`] are the two ends of one stream: they make the bytes, pace them by a [`Schedule`], check
//! what arrives, and the client's end keeps the times. A finished stream is a [`Record`]; [`records`] writes
//! them as JSON Lines, CSV and the JSON that tornettools reads, and sums them up.
//!
//! There is no I/O, clock or ambient randomness here, so that the same models drive real sockets
//! (`weft-load/src/flows/`) and virtual networks. Times are [`Duration`](std::time::Duration)s since the
//! beginning of an experiment; a generator is an argument wherever something is drawn.
//!
//! ```
//! use std::time::Duration;
//! use rand::SeedableRng as _;
//! use weft_model::traffic::{Action, Model, StreamEvent, User};
//!
//! let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
//! let mut user = User::new(Model::web());
//! let now = Duration::ZERO;
//! let Some(Action::Open { stream, plan, .. }) = user.poll_action(now, &mut rng) else {
//!     panic!("a web user begins with a page");
//! };
//! assert_eq!(plan.down.bytes(), 2_000_000);
//! user.handle(now + Duration::from_secs(3), stream, StreamEvent::Complete);
//! assert!(user.poll_action(now + Duration::from_secs(3), &mut rng).is_none());
//! assert_eq!(user.poll_timeout(), Some(Duration::from_secs(13)));
//! ```

mod delay;
mod markov;
mod model;
mod plan;
pub mod records;
mod seconds;
mod stream;
mod user;

/// A text that is not a traffic model, with the place.
pub use crate::graphs::GraphError as ModelError;
pub use delay::Delay;
pub use markov::{MarkovModel, Observation, Step, Walk};
pub use model::{Markov, Model, ModelName, Pause};
pub use plan::{Burst, MAX_BURSTS, Pacer, Plan, Schedule};
pub use records::Record;
pub use stream::{ClientStream, Failure, FailureKind, MAX_BYTES, Mark, ServerStream, Times, Way};
pub use user::{Action, StreamEvent, StreamId, User};
