//! Signs what the relay states of its weight (docs/extensions/abra.md).

use std::time::SystemTime;

use weft_cell::abra::{self, AbraReason, Claim};

use super::Relay;

impl Relay {
    /// Signs a claim of now with the signing key and hands it to the controller.
    pub(super) fn sign_abra(&mut self, weight: f64, reason: AbraReason) {
        let Some(keys) = &self.identity.keys else {
            return;
        };
        // A clock before 1970 is wrong by far more than clients allow.
        let time = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let claim = Claim::new(time, weight, reason);
        let Ok(mut statement) = abra::unsigned(&claim, &keys.signing_cert) else {
            return;
        };
        let identity = <[u8; 32]>::from(keys.ed_identity);
        let signature = keys.signing.sign(&abra::signed_part(&identity, &statement));
        statement.extend_from_slice(&signature.to_bytes());
        self.controller.abra_signed(statement.into());
    }
}
