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

    /// The family that the relay is in, by the family's key.
    FamilyId: Lines,
        lost(&[], "this relay will NOT be in the family of this key: list its relays in MyFamily");

    /// The directory of family keys.
    FamilyKeyDirectory: Path,
        immutable, harmless("it only describes FamilyId, which has a warning of its own");
}
