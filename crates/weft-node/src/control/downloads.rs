//! `downloads/…`: how fetches of the directory's documents go (control-spec 3.9; C tor's
//! `getinfo_helper_downloads`).

use std::time::SystemTime;

use weft_dir::downloads::{Attempts, Downloads, KeyDigest};

use super::view::iso_time;

/// The value of a key after `downloads/`, or C tor's words for there being none; `None`: there is no such key.
pub(super) fn answer(key: &str, downloads: &Downloads) -> Option<Result<String, &'static str>> {
    Some(match key.split_once('/') {
        Some(("networkstatus", flavour)) => consensus(flavour, downloads),
        Some(("cert", what)) => certificates(what, downloads),
        // Server descriptors: Weft fetches none.
        Some(("desc", "descs")) => Err("We don't seem to have a networkstatus-flavored consensus"),
        Some(("desc", digest)) => Err(absent(
            digest,
            "No such descriptor digest found",
            "Unknown router descriptor download status query",
        )),
        // There are no bridges yet.
        Some(("bridge", "bridges")) => Err("We don't seem to be using bridges"),
        Some(("bridge", digest)) => Err(absent(
            digest,
            "No such bridge identity digest found",
            "Unknown bridge descriptor download status query",
        )),
        _ => return None,
    })
}

/// `found`: the words for a digest that is well-formed.
fn absent(digest: &str, found: &'static str, unknown: &'static str) -> &'static str {
    match (digest.len(), parse(digest)) {
        (40, Some(_)) => found,
        (40, None) => "That didn't look like a digest",
        _ => unknown,
    }
}

fn consensus(flavour: &str, downloads: &Downloads) -> Result<String, &'static str> {
    let never = Attempts::default();
    let now = match downloads.has_consensus {
        true => (&downloads.following, false),
        false => (&downloads.first, true),
    };
    let (attempts, first, own) = match flavour {
        "microdesc" => (now.0, now.1, true),
        "microdesc/bootstrap" => (&downloads.first, true, true),
        "microdesc/running" => (&downloads.following, false, true),
        // Weft does not fetch this one.
        "ns" => (&never, now.1, false),
        "ns/bootstrap" => (&never, true, false),
        "ns/running" => (&never, false, false),
        _ => return Err("Unknown flavor"),
    };
    // The first is asked for from anybody, but that of flavour `ns`; and so are those that follow.
    let from = match first && !own {
        true => "DL_WANT_AUTHORITY",
        false => "DL_WANT_ANY_DIRSERVER",
    };
    let on = match first {
        true => "DL_SCHED_INCREMENT_ATTEMPT",
        false => "DL_SCHED_INCREMENT_FAILURE",
    };
    Ok(status(attempts, "DL_SCHED_CONSENSUS", from, on))
}

fn certificates(what: &str, downloads: &Downloads) -> Result<String, &'static str> {
    let status = || {
        let on = "DL_SCHED_INCREMENT_FAILURE";
        status(
            &downloads.certs,
            "DL_SCHED_GENERIC",
            "DL_WANT_ANY_DIRSERVER",
            on,
        )
    };
    if what == "fps" {
        return Ok(list(downloads.keys.keys()));
    }
    let Some(what) = what.strip_prefix("fp/") else {
        return Err("Unknown certificate download status query");
    };
    let Some((authority, key)) = what.split_once('/') else {
        let authority = parse(what).ok_or("That didn't look like a digest")?;
        let keys = downloads.keys.get(&authority);
        return keys
            .map(|_| status())
            .ok_or("Failed to get download status for this authority identity digest");
    };
    let authority = parse(authority).ok_or("That didn't look like an identity digest")?;
    let keys = downloads.keys.get(&authority);
    if key == "sks" {
        return keys
            .map(list)
            .ok_or("Failed to get list of signing key digests for this authority identity digest");
    }
    let key = parse(key).ok_or("That didn't look like a signing key digest")?;
    keys.filter(|keys| keys.contains(&key))
        .map(|_| status())
        .ok_or("Failed to get download status for this identity/signing key digest pair")
}

fn parse(digest: &str) -> Option<KeyDigest> {
    let mut bytes = [0; 20];
    hex::decode_to_slice(digest, &mut bytes).ok()?;
    Some(bytes)
}

/// One digest on each line.
fn list<'a>(digests: impl IntoIterator<Item = &'a KeyDigest>) -> String {
    let lines = digests
        .into_iter()
        .map(|digest| hex::encode_upper(digest) + "\n");
    lines.collect()
}

/// C tor's `download_status_to_string`. Weft's delays have no positions: each follows from the one before.
fn status(attempts: &Attempts, schedule: &str, from: &str, on: &str) -> String {
    let Attempts {
        next,
        failures,
        attempts,
        delay,
    } = attempts;
    let next = iso_time(SystemTime::into(*next), ' ');
    format!(
        "next-attempt-at {next}\nn-download-failures {failures}\nn-download-attempts {attempts}\n\
         schedule {schedule}\nwant-authority {from}\nincrement-on {on}\n\
         backoff DL_SCHED_RANDOM_EXPONENTIAL\nlast-backoff-position {failures}\n\
         last-delay-used {}\n",
        delay.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn downloads() -> Downloads {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let failed = Attempts {
            next: start,
            failures: 3,
            attempts: 4,
            delay: Duration::from_secs(51),
        };
        Downloads {
            first: failed,
            keys: [([0xab; 20], [[1; 20], [2; 20]].into())].into(),
            ..Downloads::default()
        }
    }

    #[test]
    fn fetches_of_the_consensus_have_c_tors_lines() {
        let mut downloads = downloads();
        let first = "next-attempt-at 2023-11-14 22:13:20\nn-download-failures 3\n\
             n-download-attempts 4\nschedule DL_SCHED_CONSENSUS\n\
             want-authority DL_WANT_ANY_DIRSERVER\nincrement-on DL_SCHED_INCREMENT_ATTEMPT\n\
             backoff DL_SCHED_RANDOM_EXPONENTIAL\nlast-backoff-position 3\nlast-delay-used 51\n";
        let ask = |key: &str, downloads: &Downloads| {
            answer(&format!("networkstatus/{key}"), downloads).unwrap()
        };
        assert_eq!(ask("microdesc/bootstrap", &downloads).unwrap(), first);
        assert_eq!(ask("microdesc", &downloads).unwrap(), first);
        let running = ask("microdesc/running", &downloads).unwrap();
        assert!(
            running.starts_with("next-attempt-at 1970-01-01 00:00:00\nn-download-failures 0\n")
        );
        assert!(running.contains("increment-on DL_SCHED_INCREMENT_FAILURE\n"));
        downloads.has_consensus = true;
        assert_eq!(ask("microdesc", &downloads).unwrap(), running);
        let ns = ask("ns/bootstrap", &downloads).unwrap();
        assert!(ns.contains("n-download-attempts 0\n") && ns.contains("DL_WANT_AUTHORITY\n"));
        assert_eq!(ask("frob", &downloads), Err("Unknown flavor"));
    }

    #[test]
    fn certificates_are_known_by_authority_and_key() {
        let downloads = downloads();
        let ask = |key: &str| answer(key, &downloads).unwrap();
        let (authority, key) = ("AB".repeat(20), "02".repeat(20));
        assert_eq!(ask("cert/fps").unwrap(), format!("{authority}\n"));
        let keys = format!("{}\n{key}\n", "01".repeat(20));
        assert_eq!(ask(&format!("cert/fp/{authority}/sks")).unwrap(), keys);
        for known in [authority.clone(), format!("{authority}/{key}")] {
            let status = ask(&format!("cert/fp/{known}")).unwrap();
            assert!(status.contains("\nschedule DL_SCHED_GENERIC\n"), "{status}");
        }
        let other = "CD".repeat(20);
        for (key, words) in [
            (
                "cert/frob".to_owned(),
                "Unknown certificate download status query",
            ),
            ("cert/fp/12".to_owned(), "That didn't look like a digest"),
            (
                "cert/fp/12/sks".to_owned(),
                "That didn't look like an identity digest",
            ),
            (
                format!("cert/fp/{authority}/x"),
                "That didn't look like a signing key digest",
            ),
            (
                format!("cert/fp/{other}"),
                "Failed to get download status for this authority identity digest",
            ),
            (
                format!("cert/fp/{other}/sks"),
                "Failed to get list of signing key digests for this authority identity digest",
            ),
            (
                format!("cert/fp/{authority}/{other}"),
                "Failed to get download status for this identity/signing key digest pair",
            ),
            (
                "desc/descs".to_owned(),
                "We don't seem to have a networkstatus-flavored consensus",
            ),
            (format!("desc/{other}"), "No such descriptor digest found"),
            (
                "desc/x".to_owned(),
                "Unknown router descriptor download status query",
            ),
            (
                "bridge/bridges".to_owned(),
                "We don't seem to be using bridges",
            ),
            (
                format!("bridge/{}", "x".repeat(40)),
                "That didn't look like a digest",
            ),
        ] {
            assert_eq!(ask(&key), Err(words), "{key}");
        }
        assert_eq!(answer("frob/x", &downloads), None);
    }
}
