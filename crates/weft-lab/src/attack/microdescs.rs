//! Microdescriptors for a directory cache: made up, large, and the same each time.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use base64ct::{Base64Unpadded, Encoding as _};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use sha2::{Digest as _, Sha256};

/// Most microdescriptors that one request names in practice.
const COUNT: u64 = 512;
/// Members of the family in each, 42 bytes each.
const FAMILY: usize = 45;

/// Names (base64 of SHA-256, as requests have them) and texts, 2 kB each.
pub(super) fn all() -> impl Iterator<Item = (String, String)> {
    (0..COUNT).map(|seed| {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut key = [0; 32];
        rng.fill_bytes(&mut key);
        let key = Base64Unpadded::encode_string(&key);
        let mut text = format!("onion-key\nntor-onion-key {key}\nfamily");
        for _ in 0..FAMILY {
            let mut id = [0; 20];
            rng.fill_bytes(&mut id);
            text += &format!(" ${}", hex::encode_upper(id));
        }
        text += &format!("\nid ed25519 {key}\n");
        (Base64Unpadded::encode_string(&Sha256::digest(&text)), text)
    })
}

/// Puts them into a DataDirectory, where C tor and Weft look for them.
pub(super) fn write(data: &Path) -> Result<()> {
    let path = data.join("cached-microdescs");
    let text: String = all().map(|(_, text)| text).collect();
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_answer_with_all_of_them_has_a_mebibyte_and_its_request_fits() {
        let (names, texts): (BTreeSet<String>, Vec<String>) = all().unzip();
        assert_eq!(names.len() as u64, COUNT);
        assert!(texts.iter().map(String::len).sum::<usize>() > 1_000_000);
        let request: usize = names.iter().map(|name| name.len() + 1).sum();
        assert!(request < weft_dircache::request::MAX_HEAD / 2);
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join("cached-microdescs")).unwrap();
        let read: BTreeSet<String> = weft_dir::microdesc::split(&text)
            .map(|piece| Base64Unpadded::encode_string(&piece.digest()))
            .collect();
        assert_eq!(read, names);
    }
}
