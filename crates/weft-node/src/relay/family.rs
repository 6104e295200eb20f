//! The families that the relay is in, by their keys (FamilyId, proposal 321).

use tor_llcrypto::pk::ed25519::{Ed25519Identity, ExpandedKeypair};
use weft_config::Options;
use weft_datadir::keys::family::{self, FamilyError};

use super::Relay;

/// The families' keys.
#[derive(Default)]
pub(super) struct Families(pub(super) Vec<ExpandedKeypair>);

impl std::fmt::Debug for Families {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(family::identity))
            .finish()
    }
}

/// Reads the keys of the families that torrc names.
///
/// # Errors
///
/// A family's key is missing, or something that is called a key is none.
pub(super) fn load(options: &Options) -> Result<Families, FamilyError> {
    let Some(families) = options
        .identity
        .families
        .as_ref()
        .filter(|_| options.is_relay())
    else {
        return Ok(Families::default());
    };
    let expected: Vec<Ed25519Identity> = families.ids.iter().map(|id| (*id).into()).collect();
    let keys = family::load(&options.files.family_key_directory, &expected, families.all)?;
    tracing::info!("Found {} family ID keys", keys.len());
    Ok(Families(keys))
}

impl Relay {
    /// Reads them again; where that fails, those of before remain.
    pub(super) fn reload_families(&mut self) {
        match load(&self.options) {
            Ok(families) => self.identity.families = families,
            Err(error) => tracing::warn!("Could not read the keys of families: {error}"),
        }
    }

    /// Warns once, where clients still go by the list of a family (`warn_about_family_id_config`).
    pub(super) fn check_families(&mut self) {
        let identity = &self.options.identity;
        let lacks_list = identity.families.is_some() && identity.my_family.is_empty();
        if lacks_list
            && self.options.is_relay()
            && self.network.params.publish_family_list
            && !std::mem::replace(&mut self.identity.warned_of_family, true)
        {
            // C tor's text.
            tracing::warn!(
                "FamilyId was configured, but MyFamily was not. FamilyId is good, but the Tor network still \
                 requires MyFamily while clients are migrating to use family keys instead."
            );
        }
    }
}
