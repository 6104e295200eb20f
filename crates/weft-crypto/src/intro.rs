//! MAC that binds an ESTABLISH_INTRO to the circuit that it is sent on (rend-spec-v3 3.1.1).

use sha3::{Digest as _, Sha3_256};

/// Length of KH, which a handshake leaves beside the keys of a hop (tor-spec 5.2).
pub const KH_LEN: usize = 20;

/// HANDSHAKE_AUTH: the MAC, under the KH that both ends of a circuit have, over the bytes before it
/// in the message.
pub fn handshake_auth(kh: &[u8; KH_LEN], covered: &[u8]) -> [u8; 32] {
    // MAC(key, message) = SHA3-256(length of the key in eight bytes | key | message) (rend-spec-v3 0.3).
    let mut mac = Sha3_256::new();
    mac.update((KH_LEN as u64).to_be_bytes());
    mac.update(kh);
    mac.update(covered);
    mac.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By Python's hashlib.
    #[test]
    fn the_mac_is_sha3_of_the_key_s_length_the_key_and_the_message() {
        let kh = std::array::from_fn(|n| n as u8);
        assert_eq!(
            hex::encode(handshake_auth(&kh, b"covered")),
            "d53a764d6864cfc2b1882b21f3b1422738658cc44f4d84acff340fafa7ba43d5"
        );
    }
}
