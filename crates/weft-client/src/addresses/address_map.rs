//! Names that stand for other names: `MapAddress` of torrc, MAPADDRESS of controllers, and virtual addresses of names that were
//! looked up (`AutomapHostsOnResolve`).

use std::collections::BTreeMap;

use rand::Rng;
use weft_planted::{Fault, planted};

use super::host::Host;
use super::virtual_addresses::Virtual;
use weft_config::{Automap, VirtualNetworks};

/// Replacements in a row at most: maps may lead in circles.
const MAX_REWRITES: usize = 16;
/// Virtual addresses that are tried until one is free.
const VIRTUAL_TRIES: usize = 100;
/// Entries at most that controllers may make.
const MAX_ENTRIES: usize = 4096;
/// Virtual addresses at most of names that were looked up. Past that the one whose name was looked up longest ago gives way,
/// so that a page with many names does not keep others from theirs; it leads nowhere then.
const MAX_AUTOMAPPED: usize = 1 << 16;

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapSource {
    /// `MapAddress` of torrc.
    Torrc,
    /// A controller.
    Controller,
    /// A look-up.
    LookUp,
}

/// The map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressMap {
    /// From names to names.
    exact: BTreeMap<Host, (Host, MapSource)>,
    /// From suffixes of names, with their dot, to their replacement: a suffix, or a whole name.
    ends: BTreeMap<String, (Replacement, MapSource)>,
    /// Virtual addresses of names that were looked up.
    automapped: BTreeMap<(Host, Virtual), Automapped>,
    /// Their names by the look-up that was their last.
    looked_up: BTreeMap<u64, (Host, Virtual)>,
    /// Look-ups so far.
    look_ups: u64,
}

/// The virtual address of a name that was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Automapped {
    from: Host,
    /// Its last look-up.
    last: u64,
}

/// The replacement of names with a certain suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Replacement {
    /// A new end: the suffix that matched is replaced by it.
    End(String),
    /// This.
    Whole(Host),
}

impl AddressMap {
    /// Replaces the entries of torrc by these. Returns whether there was room for all.
    pub fn configure(&mut self, maps: &[(String, String)]) -> bool {
        if !planted(Fault::MapOutlivesReset) {
            self.exact
                .retain(|_, (_, source)| *source != MapSource::Torrc);
            self.ends
                .retain(|_, (_, source)| *source != MapSource::Torrc);
        }
        let mut room = true;
        for (from, to) in maps {
            room &= self.insert(from, to, MapSource::Torrc);
        }
        room
    }

    /// Maps a name to another for a controller; `*.example.com` is any name below (and `example.com` itself). A
    /// name that is mapped to itself is no longer mapped. Returns whether there was room.
    pub fn map(&mut self, from: &str, to: &str) -> bool {
        self.insert(from, to, MapSource::Controller)
    }

    fn insert(&mut self, from: &str, to: &str, source: MapSource) -> bool {
        if let Some(end) = from.strip_prefix("*.") {
            let end = format!(".{}", Host::new(end));
            let to = match to.strip_prefix("*.") {
                Some(rest) => Replacement::End(format!(".{}", Host::new(rest))),
                None => Replacement::Whole(Host::new(to)),
            };
            if matches!(&to, Replacement::End(to) if *to == end) {
                self.ends.remove(&end);
                return true;
            }
            let room = self.len() < MAX_ENTRIES || self.ends.contains_key(&end);
            if room {
                self.ends.insert(end, (to, source));
            }
            return room;
        }
        let (from, to) = (Host::new(from), Host::new(to));
        if from == to {
            self.unmap(&from);
            return true;
        }
        let room = self.len() < MAX_ENTRIES || self.exact.contains_key(&from);
        if room {
            self.unmap(&from);
            self.exact.insert(from, (to, source));
        }
        room
    }

    /// Entries.
    fn len(&self) -> usize {
        self.exact.len() - self.automapped.len() + self.ends.len()
    }

    /// Maps a name or an address that we choose; the previous one, if one was chosen before.
    /// `None`: there is no room, or no free address was found.
    pub fn map_virtual(
        &mut self,
        kind: Virtual,
        to: &str,
        networks: VirtualNetworks,
        rng: &mut impl Rng,
    ) -> Option<Host> {
        let to = Host::new(to);
        let known = |(from, (found, source)): &(&Host, &(Host, MapSource))| {
            *found == to && *source == MapSource::Controller && kind.owns(from, networks)
        };
        if let Some((from, _)) = self.exact.iter().find(known) {
            return Some(from.clone());
        }
        let from = self.free(kind, networks, rng)?;
        self.map(from.as_str(), to.as_str()).then_some(from)
    }

    /// A virtual address for a name that is looked up; its existing one, if it has one of this
    /// kind. `None`: there is no room, or no free address was found.
    pub fn automap(
        &mut self,
        kind: Virtual,
        name: &Host,
        networks: VirtualNetworks,
        rng: &mut impl Rng,
    ) -> Option<Host> {
        let key = (name.clone(), kind);
        self.look_ups += 1;
        let last = self.look_ups;
        if let Some(known) = self.automapped.get_mut(&key)
            && kind.owns(&known.from, networks)
        {
            self.looked_up.remove(&known.last);
            self.looked_up.insert(last, key);
            known.last = last;
            return Some(known.from.clone());
        }
        let from = self.free(kind, networks, rng)?;
        // Of a network that torrc no longer has, if there is one.
        self.forget(&key);
        if self.automapped.len() >= MAX_AUTOMAPPED
            && let Some(oldest) = self.looked_up.values().next().cloned()
        {
            self.forget(&oldest);
        }
        let entry = (name.clone(), MapSource::LookUp);
        self.exact.insert(from.clone(), entry);
        self.looked_up.insert(last, key.clone());
        let mapped = Automapped {
            from: from.clone(),
            last,
        };
        self.automapped.insert(key, mapped);
        Some(from)
    }

    /// A virtual address that is not mapped, by chance.
    fn free(&self, kind: Virtual, networks: VirtualNetworks, rng: &mut impl Rng) -> Option<Host> {
        let mut tries = (0..VIRTUAL_TRIES).map(|_| kind.choose(networks, rng));
        tries.find(|from| !self.exact.contains_key(from))
    }

    /// Forgets the virtual address of a name.
    fn forget(&mut self, key: &(Host, Virtual)) {
        if let Some(mapped) = self.automapped.remove(key) {
            self.looked_up.remove(&mapped.last);
            self.exact.remove(&mapped.from);
        }
    }

    /// Forgets the virtual addresses of names that are not to have any more.
    pub fn keep_automapped(&mut self, names: &Automap) {
        let (exact, looked_up) = (&mut self.exact, &mut self.looked_up);
        self.automapped.retain(|(name, _), mapped| {
            let stays = names.covers(name.as_str());
            if !stays {
                exact.remove(&mapped.from);
                looked_up.remove(&mapped.last);
            }
            stays
        });
    }

    /// Forgets the virtual addresses of all names that were looked up.
    pub fn forget_look_ups(&mut self) {
        self.keep_automapped(&Automap::default());
    }

    /// Forgets what a name stands for.
    fn unmap(&mut self, from: &Host) {
        let Some((to, _)) = self.exact.remove(from) else {
            return;
        };
        for kind in [Virtual::Ipv4, Virtual::Ipv6] {
            let key = (to.clone(), kind);
            let mapped = self.automapped.get(&key);
            if mapped.is_some_and(|mapped| mapped.from == *from) {
                self.forget(&key);
            }
        }
    }

    /// The replacement of a name, if it is mapped.
    pub fn rewrite(&self, name: &Host) -> Option<Host> {
        let mut current = name.clone();
        for _ in 0..MAX_REWRITES {
            match self.once(&current) {
                Some(next) if next != current => current = next,
                _ => break,
            }
        }
        (current != *name).then_some(current)
    }

    /// One step.
    fn once(&self, name: &Host) -> Option<Host> {
        if let Some((to, _)) = self.exact.get(name) {
            return Some(to.clone());
        }
        let dotted = format!(".{name}");
        // The longest end first.
        for (at, _) in dotted.match_indices('.') {
            let (start, end) = dotted.split_at_checked(at)?;
            let Some((to, _)) = self.ends.get(end) else {
                continue;
            };
            return Some(match to {
                Replacement::Whole(to) => to.clone(),
                Replacement::End(to) => Host::new(format!("{start}{to}").trim_start_matches('.')),
            });
        }
        None
    }

    /// All entries, in the order of their names: name, replacement, and source.
    pub fn entries(&self) -> Vec<(String, String, MapSource)> {
        let mut all: Vec<_> = self
            .exact
            .iter()
            .map(|(from, (to, source))| (from.to_string(), to.to_string(), *source))
            .collect();
        for (from, (to, source)) in &self.ends {
            let to = match to {
                Replacement::Whole(to) => to.to_string(),
                Replacement::End(to) => format!("*{to}"),
            };
            all.push((format!("*{from}"), to, *source));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(map: &AddressMap, name: &str) -> Option<String> {
        map.rewrite(&Host::new(name)).map(|host| host.to_string())
    }

    #[test]
    fn names_and_ends_are_replaced() {
        let mut map = AddressMap::default();
        assert!(map.map("Example.com", "192.0.2.1"));
        assert!(map.map("*.example.org", "*.example.net"));
        assert!(map.map("*.all.test", "one.test"));
        let rewrite = |name: &str| rewritten(&map, name);
        assert_eq!(rewrite("EXAMPLE.com").as_deref(), Some("192.0.2.1"));
        assert_eq!(rewrite("www.example.com"), None);
        assert_eq!(
            rewrite("a.b.example.org").as_deref(),
            Some("a.b.example.net")
        );
        assert_eq!(rewrite("example.org").as_deref(), Some("example.net"));
        assert_eq!(rewrite("notexample.org"), None);
        assert_eq!(rewrite("x.all.test").as_deref(), Some("one.test"));
    }

    #[test]
    fn circles_end_and_a_name_mapped_to_itself_is_free() {
        let mut map = AddressMap::default();
        map.map("a", "b");
        map.map("b", "a");
        assert_eq!(rewritten(&map, "a"), None, "it ends where it began");
        map.map("a", "a");
        assert_eq!(rewritten(&map, "a"), None);
        assert_eq!(rewritten(&map, "b").as_deref(), Some("a"));
        let entry = ("b".to_owned(), "a".to_owned(), MapSource::Controller);
        assert_eq!(map.entries(), [entry]);
    }

    #[test]
    fn one_target_has_one_virtual_address_of_a_kind() {
        use rand::SeedableRng as _;
        let mut map = AddressMap::default();
        let mut rng = rand::rngs::StdRng::from_seed([3; 32]);
        let networks = VirtualNetworks::default();
        let mut ask = |kind, to: &str| map.map_virtual(kind, to, networks, &mut rng);
        let first = ask(Virtual::Ipv4, "a.example");
        assert!(first.is_some());
        assert_eq!(ask(Virtual::Ipv4, "A.example"), first);
        assert_ne!(ask(Virtual::Ipv4, "b.example"), first);
        assert_ne!(ask(Virtual::Name, "a.example"), first);
        let first = first.unwrap();
        assert_eq!(map.rewrite(&first), Some(Host::new("a.example")));
    }

    #[test]
    fn names_that_were_looked_up_keep_their_addresses_as_long_as_they_may_have_one() {
        use rand::SeedableRng as _;
        let mut rng = rand::rngs::StdRng::from_seed([3; 32]);
        let networks = VirtualNetworks::default();
        let mut map = AddressMap::default();
        let four = map
            .automap(Virtual::Ipv4, &"a.onion".into(), networks, &mut rng)
            .unwrap();
        let six = map
            .automap(Virtual::Ipv6, &"a.onion".into(), networks, &mut rng)
            .unwrap();
        let other = map
            .automap(Virtual::Ipv4, &"b.test".into(), networks, &mut rng)
            .unwrap();
        assert!(four != six && four != other);
        let again = map.automap(Virtual::Ipv4, &"a.onion".into(), networks, &mut rng);
        assert_eq!(again.as_ref(), Some(&four));
        assert_eq!(map.rewrite(&six), Some(Host::new("a.onion")));
        map.keep_automapped(&Automap::new(&[".onion".to_owned()]));
        assert_eq!(map.rewrite(&four), Some(Host::new("a.onion")));
        assert_eq!(map.rewrite(&other), None);
        // A controller's map is not one of these.
        map.map(four.as_str(), "c.example");
        map.keep_automapped(&Automap::default());
        assert_eq!(map.rewrite(&four), Some(Host::new("c.example")));
        assert_eq!(map.rewrite(&six), None);
    }

    #[test]
    fn the_name_that_was_looked_up_longest_ago_gives_way() {
        use rand::SeedableRng as _;
        let mut rng = rand::rngs::StdRng::from_seed([3; 32]);
        let networks = VirtualNetworks::default();
        let mut map = AddressMap::default();
        let mut ask = |map: &mut AddressMap, name: &str| {
            map.automap(Virtual::Ipv4, &name.into(), networks, &mut rng)
                .unwrap()
        };
        let first = ask(&mut map, "first.onion");
        let second = ask(&mut map, "second.onion");
        for number in 2..MAX_AUTOMAPPED {
            ask(&mut map, &format!("{number}.onion"));
        }
        assert_eq!(ask(&mut map, "first.onion"), first, "it is used again");
        ask(&mut map, "one.more.onion");
        assert_eq!(map.rewrite(&first), Some(Host::new("first.onion")));
        assert_eq!(map.rewrite(&second), None);
        let bounds = [map.exact.len(), map.automapped.len(), map.looked_up.len()];
        assert_eq!(bounds, [MAX_AUTOMAPPED; 3]);
        assert_eq!(map.len(), 0, "controllers have their own room");
    }

    #[test]
    fn the_entries_of_torrc_are_replaced_whole_and_leave_those_of_controllers() {
        let maps = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            let pairs = all.iter();
            pairs.map(|(a, b)| ((*a).into(), (*b).into())).collect()
        };
        let mut map = AddressMap::default();
        assert!(map.configure(&maps(&[("a.test", "1.test"), ("*.b.test", "*.2.test")])));
        assert!(map.map("c.test", "3.test") && map.map("*.d.test", "4.test"));
        assert_eq!(map.entries().len(), 4);
        assert!(map.configure(&maps(&[("e.test", "5.test")])));
        assert_eq!(rewritten(&map, "a.test"), None);
        assert_eq!(rewritten(&map, "x.b.test"), None);
        for (from, to) in [
            ("c.test", "3.test"),
            ("x.d.test", "4.test"),
            ("e.test", "5.test"),
        ] {
            assert_eq!(rewritten(&map, from).as_deref(), Some(to));
        }
        // A name that both map is torrc's, as in C tor, where the last to map it has it.
        map.configure(&maps(&[("c.test", "6.test")]));
        assert_eq!(rewritten(&map, "c.test").as_deref(), Some("6.test"));
        map.configure(&[]);
        assert_eq!(map.entries().len(), 1);
    }

    #[test]
    fn a_dot_at_the_end_of_a_name_changes_nothing() {
        let mut map = AddressMap::default();
        assert!(map.map("a.test.", "b.Onion.") && map.map("*.c.test.", "*.d.test."));
        assert_eq!(rewritten(&map, "A.test").as_deref(), Some("b.onion"));
        assert_eq!(rewritten(&map, "a.test.").as_deref(), Some("b.onion"));
        assert_eq!(rewritten(&map, "x.c.test.").as_deref(), Some("x.d.test"));
        assert!(map.map("a.test", "a.test."));
        assert_eq!(rewritten(&map, "a.test"), None);
    }

    #[test]
    fn there_is_a_bound() {
        let mut map = AddressMap::default();
        // Names and ends of names share it.
        for number in 0..MAX_ENTRIES {
            let kind = ["", "*."][number % 2];
            assert!(map.map(&format!("{kind}{number}"), "x"));
        }
        for more in ["more", "*.more"] {
            assert!(!map.map(more, "x"), "{more}");
            let of_torrc = [more, "0"].map(|from| (from.to_owned(), "x".to_owned()));
            assert!(!map.clone().configure(&of_torrc), "{more}");
        }
        assert!(map.map("0", "y") && map.map("*.1", "y"));
        assert!(map.map("0", "0") && map.map("*.more", "x"));
    }
}
