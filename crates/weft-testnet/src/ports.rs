//! TCP ports on loopback that are ours for as long as we want them.
//!
//! A port that was free a moment ago may be taken when the relay that is to use it starts, or while
//! it restarts. So each port is held by a socket that is bound with `SO_REUSEADDR` and never
//! listens: the kernel does not assign such a port, and yet lets a process that names it, also with
//! `SO_REUSEADDR` as servers do, bind and listen on it.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};

/// A loopback port that stays ours until this is dropped.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _holder: Socket,
}

impl Port {
    /// Picks a free port and holds it.
    pub fn reserve() -> Result<Port> {
        let reserve = || {
            let holder = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            holder.set_reuse_address(true)?;
            holder.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
            let address = holder.local_addr()?.as_socket();
            Ok::<_, std::io::Error>((address, holder))
        };
        let (address, _holder) = reserve().context("reserving a free TCP port on 127.0.0.1")?;
        let address = address.context("a TCP socket without an IP address")?;
        Ok(Port { address, _holder })
    }

    /// 127.0.0.1 and the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number alone.
    pub fn number(&self) -> u16 {
        self.address.port()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_server_can_listen_on_a_held_port_again_and_again() {
        let port = Port::reserve().expect("a port");
        for _ in 0..3 {
            let listener =
                TcpListener::bind(port.address()).expect("the port is free for its user");
            let client = TcpStream::connect(port.address()).expect("it listens");
            let (server, _) = listener.accept().expect("it accepts");
            drop((server, client));
        }
    }

    #[test]
    fn held_ports_differ() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve().expect("a port")).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
    }
}
