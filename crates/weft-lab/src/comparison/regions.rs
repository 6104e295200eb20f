//! Where hosts are if no graph is given: some countries, with delays that are ours, near what one measures between them.

use std::fmt::Write as _;

/// The file's name beside the scenario.
pub(crate) const FILE: &str = "regions.graphml";

/// Countries, and how many of sixteen hosts are there: most relays and users are in Europe and North America.
const COUNTRIES: [(&str, usize); 9] = [
    ("de", 4),
    ("gb", 2),
    ("pl", 2),
    ("us", 3),
    ("ca", 1),
    ("br", 1),
    ("sg", 1),
    ("jp", 1),
    ("au", 1),
];

/// One way, milliseconds: a country with itself and with those after it.
const DELAYS: [&[u32]; 9] = [
    &[5, 9, 12, 50, 55, 105, 85, 120, 140],
    &[5, 16, 42, 47, 100, 88, 115, 138],
    &[8, 58, 62, 112, 92, 125, 148],
    &[15, 12, 62, 115, 82, 105],
    &[12, 70, 112, 78, 108],
    &[15, 165, 135, 155],
    &[5, 36, 48],
    &[6, 55],
    &[10],
];

/// Lines of clients, KiB/s: some 10 and 50 Mbit/s.
const UP: u32 = 1_221;
const DOWN: u32 = 6_104;

/// Countries of a scenario's `[network]`, each as often as hosts are there.
pub(crate) fn countries() -> Vec<&'static str> {
    let each = COUNTRIES.iter();
    each.flat_map(|(code, often)| std::iter::repeat_n(*code, *often))
        .collect()
}

/// The graph, in the format of Shadow's topologies.
pub(crate) fn graph() -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<graphml>\n<key id=\"c\" for=\"node\" attr.name=\"countrycode\"/>\n\
         <key id=\"u\" for=\"node\" attr.name=\"bandwidthup\"/>\n<key id=\"d\" for=\"node\" attr.name=\"bandwidthdown\"/>\n\
         <key id=\"l\" for=\"edge\" attr.name=\"latency\"/>\n<graph edgedefault=\"undirected\">\n",
    );
    // Writing to a string cannot fail.
    for (code, _) in COUNTRIES {
        let _ = writeln!(
            text,
            "<node id=\"{code}\"><data key=\"c\">{code}</data><data key=\"u\">{UP}</data><data key=\"d\">{DOWN}</data></node>"
        );
    }
    for (from, delays) in DELAYS.iter().enumerate() {
        for (after, delay) in delays.iter().enumerate() {
            let code = |place: usize| COUNTRIES.get(place).map_or("", |(code, _)| *code);
            let (source, target) = (code(from), code(from + after));
            let _ = writeln!(
                text,
                "<edge source=\"{source}\" target=\"{target}\"><data key=\"l\">{delay}</data></edge>"
            );
        }
    }
    text + "</graph>\n</graphml>\n"
}

#[cfg(test)]
mod tests {
    use weft_model::links::Countries;

    use super::*;

    #[test]
    fn every_country_is_joined_to_every_other() {
        let graph = Countries::parse(&graph()).unwrap();
        let ids: Vec<_> = graph.ids().collect();
        assert_eq!(ids.len(), COUNTRIES.len());
        for from in &ids {
            for to in &ids {
                assert!(graph.between(*from, *to).is_ok());
            }
        }
        for code in countries() {
            assert!(graph.find(code).is_ok(), "{code}");
        }
    }
}
