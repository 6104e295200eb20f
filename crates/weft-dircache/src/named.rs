//! Documents that the path of a request names (dir-spec 4.2 to 4.6), total over hostile bytes.
//! Invalid names are skipped.

use base64ct::{Base64Unpadded, Encoding as _};
use tor_llcrypto::pk::rsa::RsaIdentity;

/// Documents that one request may name. Requests of C tor name 96 descriptors or 92 (of tunnelled
/// connections: 500) microdescriptors at most.
pub const MAX_NAMED: usize = 512;

/// Hexadecimal fingerprints or SHA-1 digests, joined by `+`.
pub fn identities(list: &str) -> impl Iterator<Item = RsaIdentity> {
    list.split('+').take(MAX_NAMED).filter_map(identity)
}

/// Pairs of hexadecimal fingerprints, `F-S`, joined by `+`.
pub fn identity_pairs(list: &str) -> impl Iterator<Item = (RsaIdentity, RsaIdentity)> {
    list.split('+').take(MAX_NAMED).filter_map(|pair| {
        let (one, other) = pair.split_once('-')?;
        Some((identity(one)?, identity(other)?))
    })
}

/// SHA-256 digests in base64 without padding, joined by `-`.
pub fn digests(list: &str) -> impl Iterator<Item = [u8; 32]> {
    list.split('-').take(MAX_NAMED).filter_map(|digest| {
        let mut bytes = [0; 32];
        let decoded = Base64Unpadded::decode(digest, &mut bytes).ok()?;
        (decoded.len() == 32).then_some(bytes)
    })
}

/// True if more than half of the identities that `wanted` names by their prefixes are among
/// `signers`.
pub fn signed_by(signers: &[RsaIdentity], wanted: &str) -> bool {
    let signers: Vec<String> = signers
        .iter()
        .map(|id| hex::encode_upper(id.as_bytes()))
        .collect();
    let (mut named, mut found) = (0_usize, 0_usize);
    let prefixes = wanted.split('+').map(str::trim);
    for prefix in prefixes.filter(|prefix| !prefix.is_empty()).take(MAX_NAMED) {
        named += 1;
        let prefix = prefix.to_ascii_uppercase();
        found += usize::from(signers.iter().any(|id| id.starts_with(&prefix)));
    }
    found > named / 2
}

/// Forty hexadecimal digits.
fn identity(text: &str) -> Option<RsaIdentity> {
    let mut bytes = [0; 20];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_what_is_none_is_passed_over() {
        let [one, other] = ["01", "aB"].map(|byte| byte.repeat(20));
        let [first, second] = [[1; 20], [0xab; 20]].map(RsaIdentity::from);
        let list = format!("{one}+nonsense+\u{e9}+{other}0+{other}");
        assert_eq!(Vec::from_iter(identities(&list)), [first, second]);
        let list = format!("{one}-{other}+{one}+{one}-x+-");
        assert_eq!(Vec::from_iter(identity_pairs(&list)), [(first, second)]);
        let digest = Base64Unpadded::encode_string(&[7; 32]);
        let list = format!("{digest}-{digest}=-AAAA--{digest}");
        assert_eq!(Vec::from_iter(digests(&list)), [[7; 32]; 2]);
    }

    #[test]
    fn lists_of_names_end_at_a_bound() {
        let identity = "00".repeat(20);
        let many = vec![&*identity; MAX_NAMED + 1].join("+");
        assert_eq!(identities(&many).count(), MAX_NAMED);
        let pair = format!("{identity}-{identity}");
        let many = vec![&*pair; MAX_NAMED + 1].join("+");
        assert_eq!(identity_pairs(&many).count(), MAX_NAMED);
        let digest = Base64Unpadded::encode_string(&[0; 32]);
        let many = vec![&*digest; MAX_NAMED + 1].join("-");
        assert_eq!(digests(&many).count(), MAX_NAMED);
    }

    #[test]
    fn more_than_half_of_those_named_must_have_signed() {
        let signers = [[0xab; 20].into(), [0xcd; 20].into()];
        for (wanted, signed) in [
            ("AB", true),
            ("abab+00", false),
            ("AB+CD+00", true),
            ("+AB+", true),
            ("", false),
            ("00", false),
        ] {
            assert_eq!(signed_by(&signers, wanted), signed, "{wanted}");
        }
    }
}
