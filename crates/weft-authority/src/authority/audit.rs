//! Whether the tables of an authority agree, for tests.

use std::collections::BTreeMap;

use super::PrivateAuthority;
use crate::reach::{Running, TESTS_AT_ONCE};

impl PrivateAuthority {
    /// Compares all tables.
    ///
    /// # Errors
    /// They do not agree.
    pub fn audit(&self) -> Result<(), String> {
        let (mut microdescs, mut descriptors) = (BTreeMap::new(), BTreeMap::new());
        for (id, router) in &self.routers {
            if router.rsa != *id || !self.reach.contains_key(id) {
                return Err(format!("nothing is known of whether {id} runs"));
            }
            *microdescs.entry(router.microdesc_digest).or_default() += 1;
            for digest in router.digests() {
                *descriptors.entry(digest).or_default() += 1;
            }
        }
        self.microdescs.audit(&microdescs)?;
        self.descriptors.audit(&descriptors)?;
        self.pins.audit()?;
        let mut running = Running::default();
        self.reach.values().for_each(|reach| running.add(reach));
        match running.all() {
            ..=TESTS_AT_ONCE => Ok(()),
            all => Err(format!("{all} tests run")),
        }
    }
}
