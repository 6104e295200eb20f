//! Key files and the state file: whatever lies in a DataDirectory is a key, a state or an error.
//!
//! An input is one file. Each reader gets it; what a reader accepts must be written again as it
//! was read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_datadir::backup::Backup;
use weft_datadir::keys::format::{self, Kind};
use weft_datadir::keys::pwbox::Pwbox;
use weft_datadir::state::State;

fuzz_target!(|file: &[u8]| {
    for kind in [Kind::MASTER_SECRET, Kind::SIGNING_SECRET] {
        if let Ok(key) = format::ed25519_key(kind, file) {
            // Reduced modulo the group's order, but the same key.
            let again = format::tag(kind, &key.to_secret_key_bytes());
            let again = format::ed25519_key(kind, &again).expect("own ed25519 key file");
            assert_eq!(again.public().as_bytes(), key.public().as_bytes());
        }
    }
    if let Ok(id) = format::ed25519_public(file) {
        assert_eq!(*format::tag(Kind::MASTER_PUBLIC, id.as_bytes()), file);
    }
    if let Ok(cert) = format::signing_cert(file) {
        assert_eq!(*format::tag(Kind::SIGNING_CERT, &cert.encoded), file);
    }
    if let Ok(sealed) = format::untag(Kind::MASTER_ENCRYPTED, file) {
        // Not opened: that takes work on purpose.
        let _ = Pwbox::parse(sealed);
    }
    // The content of a backup, whose box was opened.
    let _ = Backup::from_bytes(file);
    if let Ok((secret, public)) = format::ntor_key(file) {
        let contents = [secret.as_slice(), &public].concat();
        assert_eq!(*format::tag(Kind::NTOR, &contents), file);
    }
    if let Ok(key) = format::rsa_key(file) {
        let pem = format::rsa_pem(&key).expect("own RSA key");
        let again = format::rsa_key(pem.as_bytes()).expect("own RSA key file");
        assert_eq!(again.to_public_key(), key.to_public_key());
    }
    if let Ok(state) = State::parse(file) {
        let text = state.to_text(std::time::UNIX_EPOCH);
        assert_eq!(State::parse(text.as_bytes()).expect("own state"), state);
    }
});
