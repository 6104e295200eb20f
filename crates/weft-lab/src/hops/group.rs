//! Assigns a sample to a group and a function: a pure function of its stack.
//!
//! The rule: from the innermost function outwards, the first one in the table decides. So a system
//! call is networking, whichever function called it, and a block of AES is cryptography. A function
//! that is not in the table, such as a copy of memory, an allocation or the standard library,
//! counts for its caller. If no function of the stack is in the table, the sample is in neither
//! group and counts for the innermost function.

use serde::{Deserialize, Serialize};

/// Use of processor time. The paper's three sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Ciphers, hashes, key exchange; of relay cells and of TLS records.
    Crypto,
    /// System calls on sockets and for their readiness (the kernel's TCP is in them), reading and writing of
    /// sockets, framing of TLS records, making and relaying of cells.
    Networking,
    /// All else: circuits, queues, scheduling, directories, memory.
    Other,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 3] = [Group::Crypto, Group::Networking, Group::Other];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Group::Crypto => "crypto",
            Group::Networking => "networking",
            Group::Other => "other",
        }
    }
}

/// Whose samples they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// A node of Tor.
    Node,
    /// The laboratory itself, which makes payloads at random and checks them by their hashes: that is the
    /// experiment's, and no cryptography of onion routing.
    Lab,
}

/// Crates that make and check payloads.
const PAYLOAD: [&str; 5] = ["sha2", "chacha20", "rand", "rand_chacha", "rand_core"];

/// Crates of Rust.
const CRYPTO_CRATES: [&str; 25] = [
    "aead",
    "aes",
    "aws_lc_rs",
    "aws_lc_sys",
    "block_buffer",
    "chacha20",
    "cipher",
    "ctr",
    "curve25519_dalek",
    "digest",
    "ed25519_dalek",
    "ghash",
    "hkdf",
    "hmac",
    "inout",
    "keccak",
    "polyval",
    "rsa",
    "sha1",
    "sha2",
    "sha3",
    "subtle",
    "universal_hash",
    "weft_crypto",
    "x25519_dalek",
];

/// Prefixes of functions of AWS-LC and of assembly.
const CRYPTO_PREFIXES: [&str; 24] = [
    "AES_",
    "CRYPTO_",
    "EVP_",
    "HMAC_",
    "SHA1_",
    "SHA256_",
    "X25519",
    "_aesni_",
    "aead_",
    "aes_",
    "aesni_",
    "aws_lc_",
    "bn_",
    "curve25519_",
    "fiat_",
    "gcm_",
    "gcm128_",
    "ghash_",
    "sha1_",
    "sha256_",
    "sha512_",
    "sha3_",
    "vpaes_",
    "x25519_",
];

/// System calls for sockets, as libc calls them.
const SYSTEM_CALLS: [&str; 27] = [
    "accept",
    "accept4",
    "bind",
    "close",
    "connect",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_wait",
    "getsockopt",
    "ioctl",
    "listen",
    "poll",
    "ppoll",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "send",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setsockopt",
    "shutdown",
    "write",
    "writev",
];

/// Modules and crates that read, write and frame; and those that make the packets that are sent and relay those that
/// came, cells here, which are the paper's `send_packet` and `relay_packet`.
const NETWORKING_PATHS: [&str; 19] = [
    "weft_cell",
    "weft_core::memory::cells",
    "weft_core::manager::edges::sockets",
    "weft_core::manager::path::forward",
    "weft_core::manager::path::sealing",
    "mio",
    "rustls",
    "socket2",
    "std::net",
    "std::os::fd::owned",
    "std::sys::net",
    "weft_node::thread::connection",
    "weft_node::thread::edges::socket",
    "weft_node::thread::reading",
    "weft_node::thread::sockets",
    "weft_node::thread::tcp",
    "weft_node::thread::writing",
    "weft_lab::relay::link",
    "weft_tls",
];

/// Group of a stack, and the name of the function that decided. `stack` begins with the innermost
/// function.
#[must_use]
pub fn classify<'a>(
    program: Program,
    stack: impl IntoIterator<Item = &'a str> + Clone,
) -> (Group, &'a str) {
    let known = stack
        .clone()
        .into_iter()
        .find_map(|name| Some((group_of(program, name)?, name)));
    known.unwrap_or_else(|| (Group::Other, stack.into_iter().next().unwrap_or("unknown")))
}

/// The group of one function; `None`: it counts for its caller.
fn group_of(program: Program, name: &str) -> Option<Group> {
    let path = path_of(name);
    let first = path.split("::").next().unwrap_or_default();
    if program == Program::Lab && PAYLOAD.contains(&first) {
        return Some(Group::Other);
    }
    if !path.contains("::") {
        return foreign(path);
    }
    if CRYPTO_CRATES.contains(&first) {
        return Some(Group::Crypto);
    }
    let is_in = |module: &&str| {
        path.strip_prefix(*module)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    if NETWORKING_PATHS.iter().any(is_in) {
        return Some(Group::Networking);
    }
    first.starts_with("weft").then_some(Group::Other)
}

/// The group of a function that is not Rust's: of libc, AWS-LC or assembly.
fn foreign(name: &str) -> Option<Group> {
    let mut call = name.trim_start_matches('_');
    for prefix in ["GI_", "libc_"] {
        call = call.strip_prefix(prefix).unwrap_or(call);
        call = call.trim_start_matches('_');
    }
    if SYSTEM_CALLS.contains(&call) {
        return Some(Group::Networking);
    }
    CRYPTO_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
        .then_some(Group::Crypto)
}

/// The path of a function in Rust's notation; of `<Type as Trait>::method`, that of the type.
fn path_of(name: &str) -> &str {
    let name = name.trim_start_matches(['<', '&', '_', '(']);
    let name = name.strip_prefix("mut ").unwrap_or(name);
    let name = name.strip_prefix("dyn ").unwrap_or(name);
    let end = name.find(['<', ' ', '>', '{']).unwrap_or(name.len());
    name.get(..end).unwrap_or_default().trim_end_matches("::")
}

/// A name for tables: without the types that it is generic over.
#[must_use]
pub fn short(name: &str) -> String {
    const LONGEST: usize = 60;
    let mut depth = 0usize;
    let mut text = String::new();
    let body = name.strip_prefix('<').filter(|_| name.contains(" as "));
    let name = match body.and_then(|body| body.split_once(" as ")) {
        // `<Type as Trait>::method`
        Some((kind, rest)) => {
            let method = rest.rsplit_once(">::").map_or("", |(_, method)| method);
            format!("{kind}::{method}")
        }
        None => name.to_owned(),
    };
    for character in name.chars() {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => text.push(character),
            _ => {}
        }
    }
    let text = text.replace("::::", "::");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn node(stack: &[&'static str]) -> (Group, &'static str) {
        classify(Program::Node, stack.iter().copied())
    }

    #[test]
    fn the_first_function_that_is_known_decides() {
        assert_eq!(
            node(&["writev", "weft_node::thread::writing::flush", "main"]),
            (Group::Networking, "writev")
        );
        assert_eq!(
            node(&["aes_hw_ctr32_encrypt_blocks", "weft_tls::records::seal"]),
            (Group::Crypto, "aes_hw_ctr32_encrypt_blocks")
        );
        assert_eq!(
            node(&[
                "<aes::ni::Aes128 as cipher::block::BlockEncrypt>::encrypt",
                "weft_core::circuit::half::x"
            ])
            .0,
            Group::Crypto
        );
        assert_eq!(
            node(&["weft_core::scheduler::next", "weft_node::thread::run"]).0,
            Group::Other
        );
    }

    #[test]
    fn a_copy_or_an_allocation_counts_for_its_caller() {
        for inner in [
            "memcpy",
            "mi_malloc",
            "core::ptr::copy",
            "alloc::vec::Vec<T>::push",
        ] {
            assert_eq!(
                node(&[inner, "weft_tls::records::open", "main"]),
                (Group::Networking, "weft_tls::records::open")
            );
            assert_eq!(
                node(&[inner, "weft_core::circuit::half::forward"]),
                (Group::Other, "weft_core::circuit::half::forward")
            );
        }
        assert_eq!(node(&["memcpy", "start_thread"]), (Group::Other, "memcpy"));
        assert_eq!(node(&[]), (Group::Other, "unknown"));
    }

    #[test]
    fn system_calls_have_several_names() {
        for name in [
            "recv",
            "__recv",
            "__libc_recv",
            "__GI___libc_write",
            "epoll_wait",
        ] {
            assert_eq!(node(&[name]).0, Group::Networking, "{name}");
        }
        assert_eq!(node(&["syscall", "weft_sync::ring::wait"]).0, Group::Other);
    }

    #[test]
    fn a_crate_is_not_known_by_the_beginning_of_its_name() {
        assert_eq!(node(&["aesthetics::draw"]).0, Group::Other);
        assert_eq!(node(&["weft_node::thread::tcp_info"]).0, Group::Other);
        assert_eq!(node(&["rustls::conn::x"]).0, Group::Networking);
    }

    /// A module that moves takes its functions out of the group, and nothing else would tell.
    #[test]
    fn our_modules_of_networking_exist() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let ours = NETWORKING_PATHS
            .iter()
            .filter(|path| path.starts_with("weft_"));
        for path in ours {
            let (package, module) = path.split_once("::").unwrap_or((path, "lib"));
            let source = crates.join(package.replace('_', "-")).join("src");
            let module = source.join(module.replace("::", "/"));
            let files = [module.with_extension("rs"), module.join("mod.rs")];
            assert!(files.iter().any(|file| file.is_file()), "{path}");
        }
    }

    #[test]
    fn payloads_are_no_cryptography_of_onion_routing() {
        let stack = [
            "sha2::sha256::x86::compress",
            "weft_testnet::traffic::transfer::transfer",
        ];
        assert_eq!(classify(Program::Lab, stack).0, Group::Other);
        assert_eq!(classify(Program::Node, stack).0, Group::Crypto);
    }

    #[test]
    fn short_names_lack_types() {
        assert_eq!(
            short("<aes::ni::Aes128 as cipher::X<U16>>::encrypt"),
            "aes::ni::Aes128::encrypt"
        );
        assert_eq!(short("a::B<C, D<E>>::f"), "a::B::f");
        assert_eq!(short("writev"), "writev");
        assert_eq!(short(&"x".repeat(100)).chars().count(), 61);
    }
}
