//! Answers good and bad, and requests as they are sent.

use super::*;
use crate::clock::ManualClock;
use proptest::prelude::*;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

const HOST: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7000);

fn get(path: &str) -> Request {
    Request::get(path.to_string())
}

/// The response that `answer` is parsed into, with small limits.
async fn answered(answer: &[u8]) -> Result<Response, HttpError> {
    let limits = Limits {
        head: 1000,
        body: 2000,
        decompressed: 5000,
        ..Limits::with_stall(Duration::from_secs(30))
    };
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
    let (mut ours, mut theirs) = tokio::io::duplex(1 << 16);
    theirs.write_all(answer).await.unwrap();
    theirs.shutdown().await.unwrap();
    let result = exchange(&mut ours, Some(HOST), &get("/x"), limits, &clock).await;
    drop(theirs);
    result
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn an_answer_is_read_with_the_headers_that_matter() {
    let response = answered(
        b"HTTP/1.0 200 OK\r\nDate: Sat, 21 Nov 2026 01:01:03 GMT\r\nX-Your-Address-Is: 127.0.0.9\r\n\
          X-Descriptor-Not-New: Yes\r\nContent-Length: 4\r\n\r\nbodyjunk",
    )
    .await
    .unwrap();
    assert_eq!(
        (response.status, response.reason.as_str(), response.not_new),
        (200, "OK", true)
    );
    assert_eq!(response.body, b"body");
    assert_eq!(response.your_address, Some("127.0.0.9".parse().unwrap()));
    assert_eq!(
        response.date,
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_222_863))
    );
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_parsed_once() {
    let head = format!("HTTP/1.0 200 OK\r\nX: {}\r\n\r\n", "a".repeat(500));
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
    let limits = Limits::with_stall(Duration::from_secs(30));
    // One byte is all that is on the way.
    let (mut ours, mut theirs) = tokio::io::duplex(1);
    let request = get("/x");
    let length = request.encode(Some(HOST), None).len();
    let asked = exchange(&mut ours, Some(HOST), &request, limits, &clock);
    let answer = async {
        theirs.read_exact(&mut vec![0; length]).await.unwrap();
        theirs.write_all(head.as_bytes()).await.unwrap();
        theirs.write_all(b"body").await.unwrap();
        theirs.shutdown().await.unwrap();
    };
    let before = message::PARSED.get();
    let (response, ()) = tokio::join!(asked, answer);
    assert_eq!(response.unwrap().body, b"body");
    assert_eq!(message::PARSED.get() - before, 1);
}

#[test]
fn a_head_may_end_where_an_empty_line_ends() {
    let head = b"HTTP/1.0 200 OK\r\nA: b\r\n\r\nbody";
    let ends = (1..=head.len()).filter(|length| head_may_end(&head[..*length], length - 1));
    assert_eq!(ends.collect::<Vec<_>>(), [head.len() - 4]);
    assert!(head_may_end(head, 0) && head_may_end(b"a\n\n", 2) && !head_may_end(head, head.len()));
    for lines in ["\r\n", "\n"] {
        let late = format!("{lines}HTTP/1.0 200 OK\r\n\r\n");
        assert!(parse_head(late.as_bytes()).is_err());
    }
}

/// Asks for a document through a proxy that waits for this request and gives this answer.
async fn through_a_proxy(
    wanted: &'static [u8],
    answer: &'static [u8],
) -> Result<Response, HttpError> {
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = proxy.local_addr().unwrap();
    let serve = async move {
        let (mut stream, _) = proxy.accept().await.unwrap();
        let mut request = vec![0; wanted.len()];
        stream.read_exact(&mut request).await.unwrap();
        assert_eq!(request, wanted);
        stream.write_all(answer).await.unwrap();
        // The directory's request follows a connection alone.
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                break;
            }
        }
        if !request.is_empty() {
            assert!(request.starts_with(b"GET /x HTTP/1.0\r\n"));
            let body = b"HTTP/1.0 200 OK\r\n\r\nbody";
            stream.write_all(body).await.unwrap();
        }
    };
    let route = Route {
        bind: None,
        proxy: Some(Arc::new(weft_proxy::Proxy {
            addr,
            protocol: weft_proxy::Protocol::Socks4(None),
        })),
        http: None,
    };
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
    let limits = Limits::with_stall(Duration::from_secs(30));
    let request = get("/x");
    let asked = fetch(HOST, &route, &request, limits, &clock);
    tokio::join!(asked, serve).0
}

#[tokio::test]
async fn a_directory_is_asked_through_the_proxy_or_not_at_all() {
    let wanted: &[u8] = &[4, 1, 0x1b, 0x58, 127, 0, 0, 1, 0];
    let response = through_a_proxy(wanted, &[0, 90, 0, 0, 0, 0, 0, 0]).await;
    assert_eq!(response.unwrap().body, b"body");
    for (answer, words) in [
        (&[0, 91, 0, 0, 0, 0, 0, 0][..], "refused"),
        (b"SSH-2.0-x\r\n", "is not SOCKS4"),
    ] {
        let error = through_a_proxy(wanted, answer)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[tokio::test]
async fn without_a_length_the_body_ends_with_the_connection() {
    let response = answered(b"HTTP/1.0 404 Not found\r\n\r\nsorry")
        .await
        .unwrap();
    assert_eq!(
        (response.status, response.body.as_slice()),
        (404, b"sorry".as_slice())
    );
}

#[tokio::test]
async fn compressed_bodies_are_decompressed_announced_or_not() {
    for header in ["Content-Encoding: deflate\r\n", ""] {
        let mut answer = format!("HTTP/1.0 200 OK\r\n{header}\r\n").into_bytes();
        answer.extend(zlib(b"network-status-version 3 microdesc\n"));
        assert_eq!(
            answered(&answer).await.unwrap().body,
            b"network-status-version 3 microdesc\n"
        );
    }
}

#[tokio::test]
async fn too_much_of_anything_is_refused_by_name() {
    let mut bomb = b"HTTP/1.0 200 OK\r\nContent-Encoding: deflate\r\n\r\n".to_vec();
    bomb.extend(zlib(&[0; 100_000]));
    let mut long = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
    long.extend([b'x'; 3000]);
    let announced = b"HTTP/1.0 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec();
    let mut header = b"HTTP/1.0 200 OK\r\nX-Long: ".to_vec();
    header.extend([b'x'; 3000]);
    for (answer, part) in [
        (bomb, "decompressed body"),
        (long, "body"),
        (announced, "body"),
        (header, "head"),
    ] {
        match answered(&answer).await {
            Err(HttpError::TooLarge { what, .. }) => assert_eq!(what, part),
            other => panic!("{part}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_answer_cut_off_is_refused() {
    for answer in [
        "",
        "HTTP/1.0 200",
        "HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
    ] {
        assert!(
            matches!(
                answered(answer.as_bytes()).await,
                Err(HttpError::Truncated { .. })
            ),
            "{answer:?}"
        );
    }
    let mut answer = b"HTTP/1.0 200 OK\r\nContent-Encoding: deflate\r\n\r\n".to_vec();
    let body = zlib(
        &(0..1500_u32)
            .flat_map(u32::to_le_bytes)
            .collect::<Vec<u8>>(),
    );
    answer.extend(&body[..body.len() / 2]);
    assert!(matches!(
        answered(&answer).await,
        Err(HttpError::Decompression(_))
    ));
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    for answer in [
        "SSH-2.0-x\r\n",
        "HTTP/1.0 OK\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Encoding: br\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ] {
        assert!(
            matches!(
                answered(answer.as_bytes()).await,
                Err(HttpError::Malformed(_))
            ),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_silent_directory_is_given_up() {
    let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
    let (mut ours, mut theirs) = tokio::io::duplex(1 << 16);
    let task = tokio::spawn({
        let clock = clock.clone();
        async move {
            let limits = Limits::with_stall(Duration::from_secs(30));
            exchange(&mut ours, Some(HOST), &get("/tor/x"), limits, &*clock).await
        }
    });
    let mut request = [0; 16];
    theirs.read_exact(&mut request).await.unwrap();
    assert_eq!(&request, b"GET /tor/x HTTP/");
    theirs.write_all(b"HTTP/1.0 200 OK\r\n").await.unwrap();
    while !task.is_finished() {
        clock.advance(Duration::from_secs(10));
        tokio::task::yield_now().await;
    }
    assert!(matches!(
        task.await.unwrap(),
        Err(HttpError::Timeout { .. })
    ));
}

/// It would hold the one request for a consensus that a client makes at a time.
#[tokio::test]
async fn a_directory_that_sends_a_byte_now_and_then_is_given_up() {
    let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
    let limits = Limits::with_stall(Duration::from_secs(300));
    let (mut ours, mut theirs) = tokio::io::duplex(1 << 16);
    let task = tokio::spawn({
        let clock = clock.clone();
        async move { exchange(&mut ours, Some(HOST), &get("/tor/x"), limits, &*clock).await }
    });
    let mut request = [0; 16];
    theirs.read_exact(&mut request).await.unwrap();
    let mut answer = b"HTTP/1.0 200 OK\r\n\r\n".iter().chain([&b'x'; 1000]);
    let began = clock.monotonic();
    while !task.is_finished() {
        let passed = clock.monotonic() - began;
        assert!(passed <= limits.total + limits.stall, "{passed:?}");
        // It may have closed the stream just now.
        let _ = theirs.write_all(&[*answer.next().unwrap()]).await;
        clock.advance(Duration::from_secs(10));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    let late = task.await.unwrap();
    assert!(matches!(late, Err(HttpError::Timeout { after, .. }) if after == limits.total));
}

#[tokio::test]
async fn a_proxy_for_documents_gets_whole_addresses_and_no_other_proxy_is_asked() {
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let secret = weft_proxy::Secret::new("me:x".to_owned());
    let http = weft_proxy::HttpProxy {
        addr: proxy.local_addr().unwrap(),
        authenticator: Some(secret),
    };
    let serve = async move {
        let (mut stream, _) = proxy.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut request).await.unwrap() > 0);
        }
        let answer = b"HTTP/1.0 200 OK\r\n\r\nbody";
        stream.write_all(answer).await.unwrap();
        String::from_utf8(request).unwrap()
    };
    let route = Route {
        // Nothing listens there.
        proxy: Some(Arc::new(weft_proxy::Proxy {
            addr: "127.0.0.1:1".parse().unwrap(),
            protocol: weft_proxy::Protocol::Socks4(None),
        })),
        http: Some(Arc::new(http)),
        ..Route::default()
    };
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
    let limits = Limits::with_stall(Duration::from_secs(30));
    let request = get("/x");
    let (response, asked) = tokio::join!(fetch(HOST, &route, &request, limits, &clock), serve);
    assert_eq!(response.unwrap().body, b"body");
    let lines: Vec<&str> = asked.split("\r\n").take(3).collect();
    assert_eq!(
        lines,
        [
            "GET http://127.0.0.1:7000/x HTTP/1.0",
            "Host: 127.0.0.1:7000",
            "Proxy-Authorization: Basic bWU6eA=="
        ]
    );
    let six = "[2001:db8::1]:80".parse().unwrap();
    let bytes = request.encode(Some(six), route.http.as_deref());
    assert!(bytes.starts_with(b"GET http://[2001:db8::1]/x HTTP/1.0\r\n"));
}

#[test]
fn a_post_carries_length_reason_and_body() {
    let request = Request::Post {
        path: "/tor/",
        reason: "config change",
        body: b"router x".to_vec(),
    };
    let text = String::from_utf8(request.encode(Some(HOST), None)).unwrap();
    assert!(
        text.starts_with("POST /tor/ HTTP/1.0\r\nContent-Length: 8\r\nHost: 127.0.0.1:7000\r\n"),
        "{text}"
    );
    assert!(
        text.ends_with("X-Desc-Gen-Reason: config change\r\n\r\nrouter x"),
        "{text}"
    );
}

proptest! {
    #[test]
    fn no_bytes_break_the_head_parser(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(Some(head)) = parse_head(&bytes) {
            prop_assert!(head.length <= bytes.len());
        }
    }

    #[test]
    fn no_bytes_decompress_past_the_limit(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for compression in [Compression::Identity, Compression::Deflate, Compression::Gzip] {
            if let Ok(decoded) = decode(bytes.clone(), compression, 300) {
                prop_assert!(decoded.len() <= 300 || compression == Compression::Identity);
            }
        }
    }
}

/// TROVE-2026-021, -022.
#[test]
fn a_body_of_many_compressed_streams_or_half_of_one_ends() {
    for compression in Compression::BEST_FIRST {
        if compression == Compression::Identity {
            continue;
        }
        let one = compress(&[b'0'; 60_000], compression).unwrap();
        // Each is small enough; together they are 60 MB.
        let many = decode(one.repeat(1000), compression, 1 << 20);
        let small =
            |read: Result<Vec<u8>, HttpError>| read.map_or(true, |read| read.len() <= 60_000);
        assert!(small(many), "{compression:?}");
        for end in 0..one.len() {
            assert!(small(decode(one[..end].to_vec(), compression, 1 << 20)));
        }
    }
}
