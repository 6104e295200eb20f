//! What torrc may open and lower, to the byte and the second.

use super::*;

/// The warnings about a torrc that is accepted.
fn warned(text: &str) -> String {
    messages(&loaded(text), Severity::Warn).join("\n")
}

#[test]
fn a_client_refuses_internal_addresses_and_strange_names_unless_torrc_allows_them() {
    let apps = |text: &str| loaded(&format!("SocksPort 9050\n{text}")).options.apps;
    let default = apps("");
    assert!(default.reject_internal_addresses && default.reject_internal_answers);
    assert!(!default.allow_strange_names);
    let allows = "ClientRejectInternalAddresses 0\nAllowNonRFC953Hostnames 1\n";
    let set = apps(allows);
    assert!(!set.reject_internal_addresses && set.allow_strange_names);
    // Answers are believed only where the network is the operator's own.
    let believed = "ClientDNSRejectInternalAddresses 0\n";
    assert!(!apps(&format!("{AUTHORITY}{believed}")).reject_internal_answers);
    for text in [
        believed,
        &format!("Alternate{}{believed}", AUTHORITY.trim_start()),
    ] {
        let errors = wrong(text).join("\n");
        assert!(errors.contains("authorities of their own"), "{errors}");
    }
}

#[test]
fn a_control_port_without_a_password_is_never_open_to_other_machines() {
    for (text, opened, warning) in [
        ("ControlPort 9051", 1, "no authentication is set"),
        ("ControlPort 9051\nCookieAuthentication 1", 1, ""),
        ("ControlPort 192.0.2.1:9051", 0, "it is not opened"),
        (
            "ControlPort 192.0.2.1:9051\nCookieAuthentication 1",
            1,
            "is not encrypted",
        ),
        ("ControlSocket /c", 1, ""),
        ("ControlSocket /c WorldWritable", 1, "is WorldWritable"),
        (
            "ControlSocket /c WorldWritable\nCookieAuthentication 1",
            1,
            "",
        ),
    ] {
        let text = format!("SocksPort 0\n{text}\n");
        assert_eq!(loaded(&text).options.control.ports.len(), opened, "{text}");
        let warned = warned(&text);
        let told = match warning {
            "" => !warned.contains("Control"),
            _ => warned.contains(warning),
        };
        assert!(told, "{text}: {warned}");
    }
}

#[test]
fn a_node_belongs_to_the_process_and_the_connection_that_torrc_names() {
    let control = |text: &str| loaded(text).options.control;
    assert_eq!(control("").owning_process, None);
    assert_eq!(control("").owning_fd, None);
    let process = control("__OwningControllerProcess 12\n").owning_process;
    assert_eq!(process, Some(12));
    assert_eq!(control("__OwningControllerFD 5\n").owning_fd, Some(5));
    for text in [
        "__OwningControllerProcess 0",
        "__OwningControllerProcess x",
        "__OwningControllerFD 2147483648",
    ] {
        assert!(wrong(text).join("\n").contains("__Owning"), "{text}");
    }
}

#[test]
fn bounds_hold_to_the_byte_and_the_second() {
    let testing = format!("TestingTorNetwork 1\n{AUTHORITY}");
    for (least, past, option) in [
        (
            "BandwidthRate 76800 bytes",
            "BandwidthRate 76799 bytes",
            "BandwidthRate",
        ),
        (
            "RelayBandwidthRate 76800 bytes",
            "RelayBandwidthRate 76799 bytes",
            "RelayBandwidthRate",
        ),
        (
            "MaxAdvertisedBandwidth 38400 bytes",
            "MaxAdvertisedBandwidth 38399 bytes",
            "MaxAdvertisedBandwidth",
        ),
        (
            "RelayBandwidthRate 2 MB\nRelayBandwidthBurst 2097152 bytes",
            "RelayBandwidthRate 2 MB\nRelayBandwidthBurst 2097151 bytes",
            "RelayBandwidthBurst",
        ),
        (
            "BandwidthRate 2 MB\nBandwidthBurst 2097152 bytes",
            "BandwidthRate 2 MB\nBandwidthBurst 2097151 bytes",
            "BandwidthBurst",
        ),
        (
            "SigningKeyLifetime 172800 seconds",
            "SigningKeyLifetime 172799 seconds",
            "SigningKeyLifetime",
        ),
        (
            "DormantClientTimeout 600 seconds",
            "DormantClientTimeout 599 seconds",
            "DormantClientTimeout",
        ),
        (
            "ConstrainedSockets 1\nConstrainedSockSize 2048",
            "ConstrainedSockets 1\nConstrainedSockSize 2047",
            "ConstrainedSockSize",
        ),
        (
            "ConstrainedSockets 1\nConstrainedSockSize 262144",
            "ConstrainedSockets 1\nConstrainedSockSize 263168",
            "ConstrainedSockSize",
        ),
        (
            "ConstrainedSockets 1\nConstrainedSockSize 3072",
            "ConstrainedSockets 1\nConstrainedSockSize 3000",
            "ConstrainedSockSize",
        ),
    ] {
        let relay = |text: &str| format!("ORPort 9001\nContactInfo x\n{text}\n");
        loaded(&relay(least));
        let errors = wrong(&relay(past)).join("\n");
        assert!(errors.contains(option), "{past}: {errors}");
    }
    loaded(&format!("{testing}DormantClientTimeout 599 seconds\n"));
}

#[test]
fn what_is_relayed_is_part_of_everything_that_is_carried() {
    let rates = |text: &str| {
        let text = format!("ORPort 9001\nContactInfo x\n{text}");
        let bandwidth = loaded(&text).options.bandwidth;
        (bandwidth.rate, bandwidth.burst)
    };
    const MB: u64 = 1 << 20;
    let relay = "RelayBandwidthRate 2 MB\nRelayBandwidthBurst 3 MB\n";
    let raised = rates(&format!("BandwidthRate 1 MB\nBandwidthBurst 1 MB\n{relay}"));
    assert_eq!(raised, (2 * MB, 3 * MB));
    let kept = rates(&format!("BandwidthRate 4 MB\nBandwidthBurst 5 MB\n{relay}"));
    assert_eq!(kept, (4 * MB, 5 * MB));
    // One of them stands for the other.
    for text in ["RelayBandwidthRate 2 MB\n", "RelayBandwidthBurst 2 MB\n"] {
        let text = format!("ORPort 9001\nContactInfo x\n{text}");
        let bandwidth = loaded(&text).options.bandwidth;
        assert_eq!(bandwidth.relay_rate, Some(2 * MB), "{text}");
    }
}

#[test]
fn little_memory_and_short_heartbeats_have_a_warning() {
    let relay = |text: &str| warned(&format!("ORPort 9001\nContactInfo x\n{text}\n"));
    assert!(relay("MaxMemInQueues 67108863 bytes").contains("at least 64 MB"));
    let low = relay("MaxMemInQueues 64 MB");
    assert!(low.contains("is low") && !low.contains("at least"), "{low}");
    assert_eq!(relay("MaxMemInQueues 4 GB"), "");
    assert!(relay("HeartbeatPeriod 1799 seconds").contains("HeartbeatPeriod"));
    assert_eq!(relay("HeartbeatPeriod 1800 seconds"), "");
}

#[test]
fn each_use_is_bound_to_its_own_address() {
    let bind = loaded(
        "ORPort 9001\nContactInfo x\nOutboundBindAddress 192.0.2.1\n\
         OutboundBindAddressExit 192.0.2.2\nOutboundBindAddressPT [2001:db8::3]\n",
    )
    .options
    .network
    .outbound_bind;
    let [v4, v6]: [std::net::IpAddr; 2] = ["1.1.1.1", "2620::1"].map(|ip| ip.parse().unwrap());
    assert_eq!(bind.for_relay(v4), Some([192, 0, 2, 1].into()));
    assert_eq!(bind.for_exit(v4), Some([192, 0, 2, 2].into()));
    assert_eq!((bind.for_relay(v6), bind.for_exit(v6)), (None, None));
    let transports = bind.for_transports();
    assert_eq!(transports.v4, Some([192, 0, 2, 1].into()));
    assert_eq!(transports.v6, Some("2001:db8::3".parse().unwrap()));
}
