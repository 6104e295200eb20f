//! The descriptor of ours that an authority holds: its answer when it is asked for it.

use std::time::SystemTime;

use tor_checkable::{SelfSigned, TimeBound};
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::routerdesc::RouterDesc;

use crate::descriptor::{MAX_ROUTER_DESCRIPTOR, SignedDescriptor};

/// Where a directory has the newest descriptor of the relay `id` (dir-spec 6.2).
pub(crate) fn path(id: &RsaIdentity) -> String {
    format!("/tor/server/fp/{}", hex::encode_upper(id.as_bytes()))
}

/// The publication time of the descriptor in `body`, if it is one of `ours`' relay that keeps
/// authorities from taking `ours`: another one, and not older. The answer came over plain HTTP, so
/// only what our own keys signed counts.
pub(crate) fn overtakes(
    body: &[u8],
    id: &RsaIdentity,
    ours: &SignedDescriptor,
) -> Option<SystemTime> {
    if body.len() > MAX_ROUTER_DESCRIPTOR || body == ours.router.as_bytes() {
        return None;
    }
    let text = std::str::from_utf8(body).ok()?;
    let held = RouterDesc::parse(text)
        .ok()?
        .check_signature()
        .ok()?
        // One that has expired is still what the authority compares with.
        .dangerously_assume_timely();
    let newer = ours
        .published
        .duration_since(held.published())
        .is_ok_and(|ahead| ahead.as_secs() >= 1);
    (held.rsa_identity() == *id && !newer).then(|| held.published())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::{Moment, OwnDescriptor};
    use crate::testing::{moment, now, relay, secs};

    fn signed(relay: &OwnDescriptor, published: SystemTime) -> SignedDescriptor {
        let moment = Moment {
            published,
            ..moment()
        };
        relay.sign(&moment).unwrap()
    }

    #[test]
    fn only_another_descriptor_of_ours_that_is_not_older_overtakes() {
        let ours = relay(1);
        let id = ours.rsa_id();
        let theirs = OwnDescriptor {
            platform: "Tor 0.4.9.11 on Linux".into(),
            ..relay(1)
        };
        // Ours is published as of the whole second.
        let sent = signed(&ours, now() + std::time::Duration::from_millis(700));
        let overtaken = |body: &str| overtakes(body.as_bytes(), &id, &sent);
        assert_eq!(overtaken(&sent.router), None);
        assert_eq!(overtaken(&signed(&theirs, now() - secs(1)).router), None);
        for published in [now(), now() + secs(40)] {
            let held = signed(&theirs, published).router;
            assert_eq!(overtaken(&held), Some(published));
            let forged = held.replace("uptime 77", "uptime 78");
            assert_eq!(overtaken(&forged), None);
        }
        assert_eq!(overtaken(&signed(&relay(2), now()).router), None);
        assert_eq!(overtaken("router x"), None);
        assert_eq!(overtakes(&[0xff; 100], &id, &sent), None);
    }
}
