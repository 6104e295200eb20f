//! A page in a real browser: headless Chromium shows a page with pictures by way of a SOCKS port of
//! Weft and three hops of Weft relays, and what it shows is what it shows without them.

mod browser;
mod site;

/// The module's name marks the tests that need a network and some time, for `cargo xtask test`.
mod private_network {
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::{IpAddr, Ipv4Addr};
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use anyhow::{Context, Result, ensure};
    use weft_testnet::control::Control;
    use weft_testnet::traffic::NameServer;
    use weft_testnet::up::{More, Plan, Up, exit_address};

    use crate::page::browser::{Picture, Way, look};
    use crate::page::site::{Damage, HEIGHT, PAGE, PICTURES, Site, WIDTH, corner, pixels};

    /// Only the exits' name server knows it.
    const NAME: &str = "pictures.example";
    const SEED: u64 = 20;

    #[test]
    fn a_page_with_pictures_is_the_same_through_three_hops() {
        run().unwrap_or_else(|error| panic!("{error:#}"));
    }

    fn run() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let site = Site::start(SEED)?;
        let url = format!("http://{NAME}:{}/", site.port());

        // What it must look like: the pictures are where they belong, pixel by pixel.
        let direct = look(folder.path(), &url, Way::Direct(NAME), PAGE)?;
        shows_the_pictures(&direct)?;
        let (asked, _) = site.take_asked();
        ensure!(asked.iter().all(|asked| asked.from == Ipv4Addr::LOCALHOST));

        let names = NameServer::start(&[(NAME, Ipv4Addr::LOCALHOST)])?;
        let resolv_conf = folder.path().join("resolv.conf");
        std::fs::write(&resolv_conf, names.resolv_conf())?;
        let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
        let mut network = Up::start(&Plan {
            more: More {
                exits: vec![
                    format!("ServerDNSResolvConfFile {}", resolv_conf.display()),
                    "ServerDNSDetectHijacking 0".to_owned(),
                ],
                ..More::default()
            },
            progress: |line| eprintln!("{line}"),
            ..Plan::of_weft(named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft"))))
        })?;
        let client = network.clients().first().context("no client")?;
        let mut control = client.controller()?;
        // Circuits that were open before the events began.
        let before = control.info("circuit-status")?;
        control.command("SETEVENTS STREAM CIRC")?;

        let begun = Instant::now();
        let way = Way::Socks(client.socks());
        let through = look(folder.path(), &url, way, PAGE)?;
        let took = begun.elapsed();
        let different = direct.differences(&through);
        ensure!(
            direct == through,
            "{} pixels differ, first at {:?}",
            different.len(),
            different.first()
        );

        let (asked, at_once) = site.take_asked();
        let exits: BTreeSet<IpAddr> = (0..2).map(|exit| exit_address(exit).into()).collect();
        let host = format!("{NAME}:{}", site.port());
        let paths: BTreeSet<&str> = asked.iter().map(|asked| asked.path.as_str()).collect();
        ensure!(
            paths.len() == PICTURES + 1 && asked.len() == PICTURES + 1,
            "{asked:?}"
        );
        for asked in &asked {
            ensure!(exits.contains(&asked.from), "not by an exit: {asked:?}");
            ensure!(asked.host == host, "for somebody else: {asked:?}");
        }
        ensure!(at_once > 1, "one stream at a time");
        ensure!(names.asked() > 0, "no exit looked the name up");
        let paths = ways(&mut control, &before, &host)?;
        for (streams, path) in &paths {
            eprintln!("{streams} streams by {}", path.join(", "));
            ensure!(path.len() == 3, "{} hops: {path:?}", path.len());
            ensure!(path.iter().collect::<BTreeSet<_>>().len() == 3, "{path:?}");
        }
        let streams: usize = paths.iter().map(|(streams, _)| streams).sum();
        ensure!(streams > PICTURES, "{streams} streams");
        eprintln!(
            "{} requests, {} bytes of pictures, {at_once} connections at once, {took:.1?} with the browser's start",
            asked.len(),
            site.bytes()
        );

        // The comparison sees what is not as it should be, down to one bit.
        for damage in [Damage::CutOff, Damage::Missing, Damage::Flipped] {
            site.damage(Some((7, damage)));
            let broken = look(folder.path(), &url, way, PAGE)?;
            let different = direct.differences(&broken);
            ensure!(!different.is_empty(), "{damage:?} is not seen");
            let (left, top) = corner(7);
            let inside = |&(x, y): &(usize, usize)| {
                (left..left + WIDTH).contains(&x) && (top..top + HEIGHT).contains(&y)
            };
            ensure!(different.iter().all(inside), "{damage:?} is elsewhere");
            eprintln!("{damage:?}: {} pixels differ", different.len());
        }
        network.check()?;
        network.stop()
    }

    /// Every picture is where it belongs, and the heading above them.
    fn shows_the_pictures(page: &Picture) -> Result<()> {
        ensure!(
            (page.width, page.height) == PAGE,
            "{} by {} pixels",
            page.width,
            page.height
        );
        for picture in 0..PICTURES {
            let (left, top) = corner(picture);
            for (at, pixel) in pixels(SEED, picture).chunks_exact(3).enumerate() {
                let (x, y) = (left + at % WIDTH, top + at / WIDTH);
                let shown = page.at(x, y);
                ensure!(
                    shown.is_some_and(|shown| shown == pixel),
                    "picture {picture}, pixel {at}: {shown:?} and not {pixel:?}"
                );
            }
        }
        let heading = (0..corner(0).1).flat_map(|y| (0..page.width).map(move |x| (x, y)));
        let dark = heading
            .filter_map(|(x, y)| page.at(x, y))
            .filter(|pixel| pixel.iter().all(|part| *part < 64))
            .count();
        ensure!(dark > 200, "no heading: {dark} dark pixels");
        Ok(())
    }

    /// The paths of the circuits on which streams to `host` were opened, and how many on each. Circuits
    /// are known from a list of those that were `open`, or because they were built since.
    fn ways(control: &mut Control, open: &str, host: &str) -> Result<Vec<(usize, Vec<String>)>> {
        let mut paths: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut streams: BTreeMap<String, usize> = BTreeMap::new();
        let mut note = |words: &[&str]| {
            if let [circuit, "BUILT", path, ..] = words {
                let hops = path.split(',').map(|hop| {
                    let name = hop.split_once(['~', '=']);
                    name.map_or(hop, |(_, name)| name).to_owned()
                });
                paths.insert((*circuit).to_owned(), hops.collect());
            }
        };
        for line in open.lines() {
            note(&line.split(' ').collect::<Vec<_>>());
        }
        let deadline = Instant::now() + Duration::from_secs(1);
        while let Some(event) = control.event(deadline)? {
            let words: Vec<&str> = event.split(' ').collect();
            match words.as_slice() {
                // Once the exit has stated its address, a stream goes by that.
                ["STREAM", _, "SENTCONNECT", circuit, target, ..] if *target == host => {
                    *streams.entry((*circuit).to_owned()).or_default() += 1;
                }
                ["CIRC", circuit @ ..] => note(circuit),
                _ => {}
            }
        }
        let paths = streams.into_iter().map(|(circuit, count)| {
            let path = paths.get(&circuit);
            let path = path.with_context(|| format!("circuit {circuit} was never built"))?;
            Ok((count, path.clone()))
        });
        paths.collect()
    }
}
