//! Maps events to C tor's logging domains.

use weft_config::log_options::Domains;

/// The domain of each module's events; the longest matching prefix wins. Others are GENERAL. Crates that log
/// nothing are not here; weft-config names the domain of its lines itself.
const DOMAIN_OF_MODULE: [(&str, &str); 4] = [
    ("weft_datadir", "PROCESS"),
    ("weft_datadir::keys", "CRYPTO"),
    ("weft_node::process", "PROCESS"),
    ("weft_node::thread", "OR"),
];

/// The domain of events with this target: the target itself where it is a domain's name
/// (`target: "HEARTBEAT"`), else the domain of the module that it names.
pub(super) fn domain_of(target: &str) -> Domains {
    let module = || {
        DOMAIN_OF_MODULE
            .iter()
            .filter(|(prefix, _)| {
                target
                    .strip_prefix(prefix)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            })
            .max_by_key(|(prefix, _)| prefix.len())
            .and_then(|(_, name)| Domains::from_name(name))
    };
    Domains::from_name(target)
        .or_else(module)
        .unwrap_or(Domains::GENERAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_map_to_domains() {
        let name = |target| domain_of(target).to_string();
        assert_eq!(name("HEARTBEAT"), "HEARTBEAT");
        assert_eq!(name("weft_datadir::keys::onion"), "CRYPTO");
        assert_eq!(name("weft_datadir::keysmith"), "PROCESS");
        assert_eq!(name("weft_node::thread"), "OR");
        assert_eq!(name("weft_node::run"), "GENERAL");
        assert_eq!(name("mio::poll"), "GENERAL");
    }
}
