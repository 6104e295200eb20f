//! The relay's name, contact and family.

options! {
    from 0;

    /// The relay's name: 1 to 19 letters and digits; `Unnamed` for a relay that sets none.
    Nickname: Text;

    /// How to reach the operator; published in the descriptor.
    ContactInfo: Text;

    /// Relays of the same operator: fingerprints, separated by commas. Circuits use one of them at
    /// most.
    MyFamily: Lines;

    /// A family that the relay is in, by the family's identity, whose key is in FamilyKeyDirectory; `*`: those of
    /// all keys that are there.
    FamilyId: Lines;

    /// The directory of family keys, `NAME.secret_family_key`; KeyDirectory unless set.
    FamilyKeyDirectory: Path,
        immutable;
}
