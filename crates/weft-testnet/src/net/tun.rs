//! A TUN device: IP packets that a namespace sends, read as from a file, and the other way.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

use anyhow::{Context as _, Result};

/// Where the kernel has the driver.
pub(super) const DEVICE: &str = "/dev/net/tun";

/// Makes a TUN device of this name in the network namespace of the calling thread. It is there until the file
/// is closed; reads and writes are of one packet each and do not block.
///
/// # Errors
///
/// There is no such driver, or the system refuses.
pub(super) fn create(name: &str) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(DEVICE)
        .with_context(|| format!("cannot open {DEVICE}"))?;
    attach(&file, name).with_context(|| format!("cannot make the TUN device {name}"))?;
    Ok(file)
}

/// `ioctl(TUNSETIFF)`: the file is a new device of this name, without a header before each packet.
fn attach(file: &File, name: &str) -> io::Result<()> {
    // SAFETY: `ifreq` is a C struct of integers and a union of such, for which all-zero bytes are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero, as the end of the name.
    let room = request.ifr_name.len() - 1;
    if name.len() > room {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq` through the pointer, which is valid for the call; `file`
    // is open for as long.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
