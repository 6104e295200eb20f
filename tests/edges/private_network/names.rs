//! Names that there are not, and name servers that take their time.

use anyhow::{Context, Result, ensure};

use crate::edges::apps::{CONNECT, RESOLVE, To, dns, socks5};
use crate::edges::net::{Watch, shared};

#[test]
fn names_that_do_not_exist_are_reported_by_every_way_of_asking() {
    shared(|net| {
        let client = net.client()?;
        let mut watch = Watch::start(client)?;
        let answer = socks5(client.socks(), "n", CONNECT, To::Name("gone.example", 80))?;
        ensure!(answer.code == 4, "{answer:?}");
        watch.hears(
            "gone.example:80",
            &["FAILED", "REASON=END", "REMOTE_REASON=RESOLVEFAILED"],
        )?;
        let answer = socks5(client.socks(), "n", RESOLVE, To::Name("gone.example", 0))?;
        ensure!(answer.code == 4, "{answer:?}");
        let (code, _) = dns(net.listener("dns")?, "gone.example", 1)?;
        ensure!(code == 3, "{code}");
        net.bystander("n", 100_000)
    });
}

/// The name server answers after 30 s; the exit gives up long before, reports that, and meanwhile answers
/// everybody else.
#[test]
fn names_that_take_half_a_minute_hold_up_nobody() {
    shared(|net| {
        let client = net.client()?;
        let before = net.memory()?;
        for first in ["slow", "silent"] {
            let mut watch = Watch::start(client)?;
            let names: Vec<String> = (0..20).map(|n| format!("{first}.n{n}.example")).collect();
            std::thread::scope(|scope| -> Result<()> {
                let asking: Vec<_> = names
                    .iter()
                    .map(|name| {
                        let socks = client.socks();
                        scope.spawn(move || socks5(socks, "s", CONNECT, To::Name(name, 80)))
                    })
                    .collect();
                // The same user's streams go on, names and all.
                for _ in 0..3 {
                    let to = To::Name("here.example", net.up.server().address().port());
                    let answer = socks5(client.socks(), "s", CONNECT, to)?;
                    ensure!(answer.code == 0, "{answer:?}");
                    net.bystander("s", 100_000)?;
                }
                for asking in asking {
                    let answer = asking.join().ok().context("a thread")??;
                    ensure!(answer.code == 4, "{answer:?}");
                }
                Ok(())
            })?;
            let target = format!("{first}.n0.example:80");
            watch.hears(&target, &["FAILED", "REMOTE_REASON=RESOLVEFAILED"])?;
        }
        net.grew_less(&before, 32 << 20)
    });
}
