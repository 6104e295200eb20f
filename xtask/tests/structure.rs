//! The house as docs/architecture.md draws it: crates use what stands below them, and so do the modules of a crate, and the
//! folders of modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module within its crate: `manager::tunnels`.
type Module = Vec<String>;

fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap().to_owned()
}

/// Folders of packages with sources, and their names.
fn packages() -> Vec<(String, PathBuf)> {
    let mut packages = vec![("xtask".to_owned(), root().join("xtask"))];
    for folder in ["crates", "bench"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.path().join("src").is_dir() {
                packages.push((entry.file_name().into_string().unwrap(), entry.path()));
            }
        }
    }
    packages.sort();
    packages
}

/// Text without comments and without the modules of its tests.
fn code(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let mut code: String = lines.flat_map(|line| [line, "\n"]).collect();
    const TESTS: &str = "#[cfg(test)]\n";
    let mut from = 0;
    while let Some(at) = code[from..].find(TESTS).map(|at| from + at) {
        let item = &code[at + TESTS.len()..];
        let first = item.lines().find(|line| !line.starts_with("#["));
        if !first.is_some_and(|line| line.contains("mod ")) {
            from = at + TESTS.len();
            continue;
        }
        let (brace, end) = (code[at..].find('{'), code[at..].find(';'));
        match end.filter(|end| brace.is_none_or(|brace| *end < brace)) {
            Some(end) => code.replace_range(at..=at + end, ""),
            // Tests stand at the end of a file.
            None => code.truncate(at),
        }
    }
    code
}

/// Paths that a tree of `use` names, each below `above`.
fn expand(above: &[String], tree: &str, paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let segments = |text: &str| -> Vec<String> {
        let names = text.split("::").map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let Some((before, inside)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or(tree);
        paths.push([above.to_vec(), segments(name)].concat());
        return;
    };
    let above = [above.to_vec(), segments(before)].concat();
    let inside = inside.rsplit_once('}').map_or(inside, |(inside, _)| inside);
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in inside.char_indices().chain([(inside.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let branch = &inside[start..at];
                if !branch.trim().is_empty() {
                    expand(&above, branch, paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Paths within the crate that code names, in `use` and elsewhere.
fn named(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let is_word = code[..at]
            .chars()
            .next_back()
            .is_none_or(|before| before.is_whitespace());
        if let (true, Some(end)) = (is_word, code[at..].find(';')) {
            let tree: String = code[at + 4..at + end]
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            expand(&[], &tree, &mut paths);
        }
    }
    let is_of_path = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    for word in code.split(|letter| !is_of_path(letter)) {
        if !word.ends_with("::") && (word.starts_with("crate::") || word.starts_with("super::")) {
            expand(&[], word, &mut paths);
        }
    }
    paths
}

/// Modules of a package, and which other modules each uses; the crate's root, which has no name, where what it defines or
/// hands on is used.
fn arrows(folder: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut files = BTreeMap::new();
    collect(&folder.join("src"), &mut Vec::new(), &mut files);
    let texts: BTreeMap<&Module, String> = files
        .iter()
        .map(|(module, file)| (module, code(&fs::read_to_string(file).unwrap())))
        .collect();
    // Wherever they are written, they are exported at the root.
    let macros: BTreeSet<String> = texts
        .values()
        .flat_map(|text| text.split("macro_rules! ").skip(1))
        .map(|rest| rest.split([' ', '{']).next().unwrap().to_owned())
        .collect();
    let mut arrows = BTreeMap::new();
    for (module, text) in &texts {
        let mut uses = BTreeSet::new();
        for path in named(text) {
            let mut place = match path.first().map(String::as_str) {
                Some("crate") => Vec::new(),
                Some("super" | "self") => module.to_vec(),
                _ => continue,
            };
            let mut rest = path.as_slice();
            while let Some((first, others)) = rest.split_first()
                && ["crate", "super", "self"].contains(&first.as_str())
            {
                if first == "super" {
                    place.pop();
                }
                rest = others;
            }
            let named = rest.first();
            if named.is_none_or(|name| is_of_tests(name) || macros.contains(name)) {
                continue;
            }
            place.extend_from_slice(rest);
            // The longest beginning that is a module: the rest are its items.
            while !place.is_empty() && !files.contains_key(&place) {
                place.pop();
            }
            if place != **module {
                uses.insert(place);
            }
        }
        arrows.insert(module.to_vec(), uses);
    }
    arrows
}

fn is_of_tests(name: &str) -> bool {
    name.ends_with("tests") || name == "testing"
}

/// Modules below a folder and their files, without the crate's root and modules of tests.
fn collect(folder: &Path, above: &mut Module, files: &mut BTreeMap<Module, PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if is_of_tests(&name) {
            continue;
        }
        if path.is_dir() {
            above.push(name);
            collect(&path, above, files);
            above.pop();
        } else if path.extension().is_some_and(|end| end == "rs") {
            let mut module = above.clone();
            if name != "mod" {
                module.push(name);
            }
            if !["lib", "main"].contains(&module.join("::").as_str()) && !module.is_empty() {
                files.insert(module, path);
            }
        }
    }
}

/// All modules that lead from one to itself: each circle once.
fn circles(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Vec<String>> {
    let reaches = |from: &Module| -> BTreeSet<Module> {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = left.pop() {
            for next in arrows.get(&module).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    left.push(next.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> = arrows
        .keys()
        .map(|module| (module, reaches(module)))
        .collect();
    let mut circles = BTreeSet::new();
    for (module, all) in reached
        .iter()
        .filter(|(module, all)| all.contains(**module))
    {
        let back = all
            .iter()
            .filter(|other| reached.get(other).is_some_and(|all| all.contains(*module)));
        circles.insert(back.map(|module| module.join("::")).collect());
    }
    circles
}

/// The modules and folders right below one, each with all that is inside it: which of them uses which.
fn rooms(
    arrows: &BTreeMap<Module, BTreeSet<Module>>,
    above: &[String],
) -> BTreeMap<Module, BTreeSet<Module>> {
    let room = |module: &Module| -> Option<Module> {
        let is_below = module.len() > above.len() && module.starts_with(above);
        is_below.then(|| module[..=above.len()].to_vec())
    };
    let mut rooms: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, uses) in arrows {
        let Some(from) = room(module) else { continue };
        let to = uses.iter().filter_map(room).filter(|to| *to != from);
        let to: BTreeSet<Module> = to.collect();
        rooms.entry(from).or_default().extend(to);
    }
    rooms
}

/// Fails on a circle, and names what ties it.
fn refuse_circles(package: &str, what: &str, arrows: &BTreeMap<Module, BTreeSet<Module>>) {
    let Some(circle) = circles(arrows).pop_first() else {
        return;
    };
    let ties = arrows.iter().flat_map(|(from, to)| {
        let to = to.iter().map(move |to| (from.join("::"), to.join("::")));
        to.filter(|(from, to)| circle.contains(from) && circle.contains(to))
    });
    let ties: Vec<String> = ties
        .map(|(from, to)| format!("  {from} uses {to}"))
        .collect();
    panic!(
        "{what} of {package} use each other in a circle: move what ties them to the one below\n{}\n{circle:?}",
        ties.join("\n")
    );
}

/// Where nothing leads back, there are floors, and each arrow leads down.
#[test]
fn modules_and_folders_of_a_crate_use_each_other_in_no_circle() {
    for (package, folder) in packages() {
        let arrows = arrows(&folder);
        for (module, uses) in &arrows {
            assert!(
                !uses.contains(&Module::new()),
                "{} of {package} uses what its root defines or hands on: name the module that has it",
                module.join("::")
            );
        }
        refuse_circles(&package, "modules", &arrows);
        let above: BTreeSet<&[String]> = arrows
            .keys()
            .flat_map(|module| (0..module.len()).map(move |depth| &module[..depth]))
            .collect();
        for above in above {
            refuse_circles(&package, "folders", &rooms(&arrows, above));
        }
    }
}

/// Methods that one type may have, outside of tests. A type with more holds what several should: give what belongs together a type
/// of its own, which is handed the rest that it needs.
const MOST_METHODS: usize = 60;

/// Types that had more when this was written, and how many. These numbers may only fall.
const LARGER: [(&str, usize); 7] = [
    ("weft-client client::Client", 188),
    ("weft-core controller::RelayController", 136),
    ("weft-dir task::DirectoryTask", 64),
    ("weft-lab relay::world::state::World", 68),
    ("weft-node relay::Relay", 146),
    ("weft-node thread::ConnectionThread", 66),
    ("weft-virtual world::state::World", 69),
];

/// The types that a module's code has inherent methods for, and how many: code is formatted, so that an `impl` ends at the next line
/// that begins with a brace.
fn methods_in(code: &str) -> BTreeMap<String, usize> {
    let mut methods = BTreeMap::new();
    let mut of: Option<String> = None;
    for line in code.lines() {
        if let Some(head) = line.strip_prefix("impl") {
            of = implemented(head);
        } else if line.starts_with('}') {
            of = None;
        }
        let Some(of) = &of else { continue };
        let item = line.strip_prefix("    ").unwrap_or_default();
        let is_method = !item.starts_with(' ')
            && item
                .split_once("fn ")
                .is_some_and(|(before, _)| before.split_whitespace().all(is_qualifier));
        if is_method {
            *methods.entry(of.clone()).or_default() += 1;
        }
    }
    methods
}

/// What stands before `fn`.
fn is_qualifier(word: &str) -> bool {
    ["pub", "const", "async", "unsafe"].contains(&word)
        || word.starts_with("pub(")
        || word.ends_with(')')
}

/// The type of an inherent `impl`, of whose line this is the rest. `None`: a trait is implemented.
fn implemented(head: &str) -> Option<String> {
    // An arrow closes no generics.
    let head = head.replace("->", "  ");
    let mut head = head.trim_start();
    if head.starts_with('<') {
        let mut depth = 0;
        let end = head.char_indices().find_map(|(at, letter)| {
            depth += i32::from(letter == '<') - i32::from(letter == '>');
            (depth == 0).then_some(at)
        });
        head = head[end? + 1..].trim_start();
    }
    let is_of_path = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    let (path, rest) = head.split_at(head.find(|letter| !is_of_path(letter))?);
    let name = path.rsplit("::").next()?;
    (!rest.contains(" for ") && !name.is_empty()).then(|| name.to_owned())
}

/// The methods of each type of a package, by the module that declares it.
fn methods(folder: &Path) -> BTreeMap<String, usize> {
    let mut files = BTreeMap::new();
    collect(&folder.join("src"), &mut Vec::new(), &mut files);
    for root in ["lib.rs", "main.rs"] {
        let file = folder.join("src").join(root);
        if file.exists() {
            files.insert(Module::new(), file);
        }
    }
    let texts: BTreeMap<&Module, String> = files
        .iter()
        .map(|(module, file)| (module, code(&fs::read_to_string(file).unwrap())))
        .collect();
    let mut declared: BTreeMap<&str, Vec<&Module>> = BTreeMap::new();
    for (module, text) in &texts {
        let words: Vec<&str> = text.split([' ', '\n', '<', '(', ';', '{']).collect();
        for pair in words.windows(2) {
            if let ["struct" | "enum" | "union", name] = pair {
                declared.entry(name).or_default().push(module);
            }
        }
    }
    let mut all = BTreeMap::new();
    for (module, text) in &texts {
        for (name, count) in methods_in(text) {
            // Its own, or the one that stands nearest: what it has most of its path in common with.
            let near = |other: &&&Module| {
                let common = module.iter().zip(other.iter());
                common.take_while(|(one, other)| one == other).count()
            };
            let declared = declared.get(name.as_str()).into_iter().flatten();
            let declared = declared.max_by_key(near).unwrap_or(module);
            *all.entry([declared.join("::"), name].join("::"))
                .or_default() += count;
        }
    }
    all
}

/// What is wrong with these types, of which some are known to be larger.
fn refuse_larger(methods: &BTreeMap<String, usize>, known: &[(&str, usize)]) -> Vec<String> {
    let listed = |name: &str| known.iter().find(|(listed, _)| *listed == name);
    let worse = methods.iter().filter_map(|(name, count)| {
        let most = listed(name).map_or(MOST_METHODS, |(_, count)| *count);
        (*count > most).then(|| format!("{name} has {count} methods, more than {most}"))
    });
    let no_more = known.iter().filter(|(name, _)| {
        let count = methods.get(*name);
        count.is_none_or(|count| *count <= MOST_METHODS)
    });
    let no_more = no_more.map(|(name, _)| {
        format!("{name} has no more than {MOST_METHODS} methods: take it off the list")
    });
    worse.chain(no_more).collect()
}

#[test]
fn no_type_has_more_methods_than_one_can_know() {
    let mut all = BTreeMap::new();
    for (package, folder) in packages() {
        for (name, count) in methods(&folder) {
            all.insert(
                format!("{package} {}", name.trim_start_matches("::")),
                count,
            );
        }
    }
    let wrong = refuse_larger(&all, &LARGER);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(all.len() > 1000, "{}", all.len());
}

#[test]
fn a_type_with_too_many_methods_is_found() {
    let found = |of: &[(&str, usize)], known: &[(&str, usize)]| {
        let of = of.iter().map(|(name, count)| ((*name).to_owned(), *count));
        refuse_larger(&of.collect(), known).join(", ")
    };
    assert_eq!(found(&[("a", 60), ("b", 61)], &[("b", 61)]), "");
    let larger = "b has 62 methods, more than";
    assert_eq!(found(&[("b", 62)], &[]), format!("{larger} 60"));
    assert_eq!(found(&[("b", 62)], &[("b", 61)]), format!("{larger} 61"));
    let off = "has no more than 60 methods: take it off the list";
    let both = found(&[("a", 60)], &[("a", 70), ("c", 70)]);
    assert_eq!(both, format!("a {off}, c {off}"));
}

#[test]
fn methods_are_counted_and_what_is_none_is_not() {
    let text = code(
        "impl One {\n    pub(in crate::manager) fn a(&self) {\n        fn inner() {}\n    }\n    const fn b() {}\n}\n\
         impl<'a, T: Fn() -> u8> One<'a, T> {\n    // fn no()\n    fn c() {}\n}\n\
         impl Clone for One {\n    fn clone(&self) -> One {}\n}\n\
         impl crate::other::Two {\n    pub async fn d() {}\n    const E: fn() = f;\n}\nfn free() {}\n\
         #[cfg(test)]\nmod tests {\n    impl One {\n        fn e() {}\n    }\n}\n",
    );
    let expected = [("One".to_owned(), 3), ("Two".to_owned(), 1)];
    assert_eq!(methods_in(&text), expected.into());
}

/// Crates in the order of the table in docs/architecture.md, from above.
fn table() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let (_, after) = text.split_once("| floor | crate | what it is |").unwrap();
    let rows = after
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('`').nth(1).unwrap().to_owned())
        .collect()
}

#[test]
fn a_crate_uses_what_stands_below_it_in_the_table() {
    let table = table();
    let place = |name: &str| table.iter().position(|row| row == name);
    let mut arrows = 0;
    for (package, folder) in packages() {
        // What developers run stands in no table.
        if !folder.starts_with(root().join("crates")) {
            continue;
        }
        let own = place(&package).unwrap_or_else(|| panic!("{package} is not in the table"));
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let (_, dependencies) = manifest.split_once("[dependencies]").unwrap_or_default();
        let lines = dependencies
            .lines()
            .skip(1)
            .take_while(|line| !line.starts_with('['));
        for line in lines {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if let Some(below) = place(name) {
                assert!(own < below, "{package} uses {name}, which stands above it");
                arrows += 1;
            }
        }
    }
    assert!(arrows > 50, "{arrows}");
}

#[test]
fn circles_are_found_and_what_is_none_is_not() {
    let module = |name: &str| vec![name.to_owned()];
    let arrows: BTreeMap<Module, BTreeSet<Module>> = [
        (module("a"), [module("b")].into()),
        (module("b"), [module("c")].into()),
        (module("c"), [module("b"), module("d")].into()),
        (module("d"), BTreeSet::new()),
    ]
    .into();
    let circle = vec!["b".to_owned(), "c".to_owned()];
    assert_eq!(circles(&arrows), [circle].into());

    // No module of these leads back to itself, but each of the folders uses the other.
    let path = |name: &str| name.split("::").map(str::to_owned).collect::<Module>();
    let arrows: BTreeMap<Module, BTreeSet<Module>> = [
        (path("a::one"), [path("b::two")].into()),
        (path("b::three"), [path("a::four"), path("b::two")].into()),
    ]
    .into();
    assert!(circles(&arrows).is_empty());
    let circle = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(circles(&rooms(&arrows, &[])), [circle].into());

    let text = "use crate::one::{Two, three::{self, Four as Five}};\nfn f() { super::six::seven() } // crate::no\n\
                #[cfg(test)]\nmod tests {\n    use crate::tested;\n}\n";
    let paths: Vec<String> = named(&code(text))
        .iter()
        .map(|path| path.join("::"))
        .collect();
    assert_eq!(
        paths,
        [
            "crate::one::Two",
            "crate::one::three::self",
            "crate::one::three::Four",
            "super::six::seven"
        ]
    );
}
