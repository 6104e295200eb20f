//! The relay's name, contact and family.

options! {
    from 0;

    /// The relay's name: 1 to 19 letters and digits; `Unnamed` for a relay that sets none.
    publishes Nickname: Text;

    /// How to reach the operator; published in the descriptor.
    publishes ContactInfo: Text;

    /// Relays of the same operator: fingerprints, separated by commas. Circuits use one of them at
    /// most.
    protects MyFamily: Lines;

    /// A family that the relay is in, by the family's identity, whose key is in FamilyKeyDirectory; `*`: those of
    /// all keys that are there.
    protects FamilyId: Lines;

    /// The directory of family keys, `NAME.secret_family_key`; KeyDirectory unless set.
    names FamilyKeyDirectory: Path,
        immutable;
}
