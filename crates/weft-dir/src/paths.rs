//! The paths of documents on a directory (dir-spec 4.2, 4.3).

use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::authcert::AuthCertKeyIds;
use tor_netdoc::doc::netstatus::ConsensusFlavor;

/// Path of the consensus on an authority, asking only for one that a majority of `authorities`
/// signed (dir-spec 4.2: conditional on 3-byte fingerprint prefixes, sorted; C tor `directory_get_consensus_url`).
pub(crate) fn consensus_path(flavour: ConsensusFlavor, authorities: &[RsaIdentity]) -> String {
    let mut prefixes: Vec<String> = authorities
        .iter()
        .map(|id| {
            id.as_bytes()
                .iter()
                .take(3)
                .map(|byte| format!("{byte:02X}"))
                .collect()
        })
        .collect();
    prefixes.sort();
    let flavour = match flavour {
        ConsensusFlavor::Plain => "",
        ConsensusFlavor::Microdesc => "-microdesc",
    };
    format!(
        "/tor/status-vote/current/consensus{flavour}/{}.z",
        prefixes.join("+")
    )
}

/// Path of the newest certificates of these authorities (dir-spec 4.3).
pub(crate) fn newest_certs_path(authorities: &[RsaIdentity]) -> String {
    let ids: Vec<String> = authorities
        .iter()
        .map(|id| hex::encode_upper(id.as_bytes()))
        .collect();
    format!("/tor/keys/fp/{}.z", ids.join("+"))
}

/// Path of the certificates with these keys (dir-spec 4.3).
pub(crate) fn certs_path(missing: &[AuthCertKeyIds]) -> String {
    let pair = |ids: &AuthCertKeyIds| {
        format!(
            "{}-{}",
            hex::encode_upper(ids.id_fingerprint.as_bytes()),
            hex::encode_upper(ids.sk_fingerprint.as_bytes())
        )
    };
    let mut pairs: Vec<String> = missing.iter().map(pair).collect();
    pairs.sort();
    pairs.dedup();
    format!("/tor/keys/fp-sk/{}.z", pairs.join("+"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_asks_for_a_majority_of_sorted_prefixes() {
        let ids = [[0xab; 20].into(), [0x01; 20].into()];
        let path = "/tor/status-vote/current/consensus-microdesc/010101+ABABAB.z";
        assert_eq!(consensus_path(ConsensusFlavor::Microdesc, &ids), path);
        let path = "/tor/status-vote/current/consensus/010101+ABABAB.z";
        assert_eq!(consensus_path(ConsensusFlavor::Plain, &ids), path);
    }
}
