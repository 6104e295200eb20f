//! Decides whether our descriptor has a TAP onion key, which no client uses any more.
//!
//! Authorities before C tor 0.4.9.12 refuse descriptors without one ("Missing TAP key in
//! descriptor."), later ones those with one. The consensus decides, by its parameter
//! `publish-dummy-tap-key` or its method; without a consensus there is one. Unlike C tor, Weft
//! sends the other form to an authority that refuses one: authorities may change the rule before
//! this relay's consensus does, and a relay that is not listed does not learn of it.

/// The form of our descriptor. No I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TapForm {
    /// The consensus' rule, as last seen.
    rule: Option<bool>,
    /// The form of the last descriptor.
    made: bool,
    /// Forms that an authority has refused since the rule is this: without, with.
    refused: [bool; 2],
    /// An authority has taken the last descriptor.
    taken: bool,
}

impl TapForm {
    /// True if the next descriptor has a TAP key.
    pub(crate) fn next(&mut self, rule: bool) -> bool {
        if self.rule != Some(rule) {
            *self = Self {
                rule: Some(rule),
                ..Self::default()
            };
        }
        let [without, with] = self.refused;
        self.taken = false;
        self.made = match rule {
            true => !with || without,
            false => without && !with,
        };
        self.made
    }

    /// An authority has taken the last descriptor.
    pub(crate) fn accepted(&mut self) {
        self.taken = true;
    }

    /// An authority has refused the last descriptor for this reason; whether it may take another form that
    /// is to be made.
    pub(crate) fn refused(&mut self, reason: &str) -> bool {
        let is_likely = names(reason, &["tap"]) || !self.taken && !names(reason, &OTHER_REASONS);
        let Some(rule) = self.rule.filter(|_| is_likely) else {
            return false;
        };
        let made = self.made;
        let [without, with] = &mut self.refused;
        match made {
            true => *with = true,
            false => *without = true,
        }
        self.next(rule) != made
    }
}

/// Words of reasons that are about something else (C tor process_descs.c; Weft's authority).
const OTHER_REASONS: [&str; 14] = [
    "address",
    "approved",
    "certificate",
    "clock",
    "expired",
    "fingerprint",
    "keypair",
    "large",
    "nickname",
    "pinning",
    "platform",
    "port",
    "timezone",
    "version",
];

/// True if an authority's reason contains one of these words.
fn names(reason: &str, words: &[&str]) -> bool {
    reason
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .any(|word| words.iter().any(|one| word.eq_ignore_ascii_case(one)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISSING: &str = "Missing TAP key in descriptor.";

    #[test]
    fn the_consensus_rules() {
        let mut form = TapForm::default();
        assert!(form.next(true));
        assert!(!form.next(false));
        assert!(form.next(true));
    }

    #[test]
    fn an_authority_that_refuses_one_form_gets_the_other() {
        let mut form = TapForm::default();
        assert!(!form.next(false));
        assert!(form.refused(MISSING));
        assert!(form.next(false), "and so does every later one");
        let mut form = TapForm::default();
        assert!(form.next(true));
        assert!(form.refused("Unexpected tap onion-key"));
        assert!(!form.next(true));
    }

    #[test]
    fn where_both_are_refused_the_consensus_rules_and_nothing_is_tried_again() {
        for rule in [true, false] {
            let mut form = TapForm::default();
            assert_eq!(form.next(rule), rule);
            assert!(form.refused(MISSING));
            assert_eq!(form.next(rule), !rule);
            // The other form is refused, too: the rule's is made once more, and then no other.
            assert!(form.refused(MISSING));
            assert_eq!(form.next(rule), rule);
            assert!(!form.refused(MISSING));
            assert_eq!(form.next(rule), rule);
        }
    }

    #[test]
    fn what_was_refused_is_forgotten_when_the_rule_changes() {
        let mut form = TapForm::default();
        form.next(false);
        form.refused(MISSING);
        assert!(form.next(true));
        assert!(!form.next(false));
    }

    #[test]
    fn other_reasons_change_nothing() {
        let mut form = TapForm::default();
        assert!(!form.refused(MISSING), "nothing was made");
        form.next(true);
        for reason in [
            "Fingerprint is marked rejected",
            "Rejected: Your clock is set too far in the future, or your timezone is not correct.",
            "Tor version is insecure or unsupported. Please upgrade!",
            "Router descriptor was too large.",
        ] {
            assert!(!form.refused(reason), "{reason}");
            assert!(form.next(true));
        }
    }

    /// C tor 0.4.9.12's words for a descriptor with a TAP key are not known.
    #[test]
    fn an_authority_that_refuses_without_naming_tap_gets_the_other_form() {
        for reason in ["", "Malformed router descriptor", "Unexpected onion-key"] {
            let mut form = TapForm::default();
            assert!(form.next(true));
            assert!(form.refused(reason), "{reason}");
            assert!(!form.next(true));
            // Once: where both are refused, the reason is another one.
            assert!(form.refused(reason));
            assert!(form.next(true));
            assert!(!form.refused(reason));
            // Nor where another authority took this form.
            let mut form = TapForm::default();
            form.next(true);
            form.accepted();
            assert!(!form.refused(reason), "{reason}");
            assert!(form.refused("a TAP key"));
        }
    }
}
