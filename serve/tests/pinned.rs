//! `holdfast run` and `holdfast call` with an applet on a server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use holdfast_testkit::Programs;

use crate::client::sha256;
use crate::served::{Home, applet};

/// The command runs an applet by its address and hash, also when its server is gone; and nothing
/// that has another hash, or none.
///
/// Guarantee: serve/pinned
#[test]
fn command_runs_a_pinned_applet() {
    let (home, program) = (Home::new(), applet("echo"));
    std::fs::write(home.web().join("echo"), &program).unwrap();
    let served = home.serve();
    let address = format!("http://127.0.0.1:{}/echo", served.port);
    let call = |address: &str| {
        let mut command = Command::new(Programs::find().unwrap().holdfast());
        command.env("HOLDFAST_HOME", home.home()).env("HOLDFAST_POOL", home.pool());
        let output = command.args(["call", address, "reverse", "abc"]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), error)
    };
    let (code, _, error) = call(&address);
    assert!(code == Some(2) && error.contains("#sha256="), "{error}");
    let wrong = "0".repeat(64);
    let (code, _, error) = call(&format!("{address}#sha256={wrong}"));
    assert!(code == Some(126) && error.contains(&wrong), "{error}");
    assert!(error.contains(&sha256(&program)), "{error}");
    let (code, _, error) = call(&format!("http://127.0.0.1:{}/gone#sha256={wrong}", served.port));
    assert!(code == Some(127) && error.contains("404"), "{error}");
    let (code, _, error) = call(&format!("http://example.org/echo#sha256={wrong}"));
    assert!(code == Some(2) && error.contains("https:"), "{error}");
    let pinned = format!("{address}#sha256={}", sha256(&program));
    let (code, said, error) = call(&pinned);
    assert_eq!((code, said.as_str()), (Some(0), "cba"), "{error}");
    served.stop();
    assert_eq!(call(&pinned).0, Some(0), "kept by its hash");
    let kept = home.home().join("applets").join(sha256(&program));
    std::fs::remove_file(&kept).unwrap();
    std::fs::write(&kept, applet("trial")).unwrap();
    assert_eq!(call(&pinned).0, Some(127), "a changed file of the cache is not used");
}

/// How long a server of these tests waits for a request.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with TLS that says the same of everything: where it is, and its certificate in PEM.
fn tls_server(body: Vec<u8>) -> (u16, String) {
    let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let signing_key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&signing_key).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(8).flatten() {
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let Ok(connection) = rustls::ServerConnection::new(Arc::clone(&config)) else {
                continue;
            };
            let mut stream = rustls::StreamOwned::new(connection, stream);
            // Who does not trust the certificate asks for nothing.
            if stream.read(&mut [0; 4096]).is_ok() {
                let length = body.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                let _ = stream.write_all(head.as_bytes());
                let _ = stream.write_all(&body);
                let _ = stream.flush();
            }
        }
    });
    (port, certificate.pem())
}

/// A server without TLS that leads everybody to one address; where it is.
fn leading_to(address: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().take(8).flatten() {
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = stream.read(&mut [0; 4096]);
            let answer = format!(
                "HTTP/1.1 302 Found\r\nlocation: {address}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

/// A certificate that the system trusts is asked for, and enough, over TLS: also behind a redirect of an
/// address without it.
///
/// Guarantee: serve/pinned
#[test]
fn pinned_applet_comes_over_tls() {
    let (home, program) = (Home::new(), applet("echo"));
    let (port, certificate) = tls_server(program.clone());
    let (_, other) = tls_server(Vec::new());
    let [trusted, foreign] = [("trusted", certificate), ("foreign", other)].map(|(name, pem)| {
        let path = home.folder().join(name);
        std::fs::write(&path, pem).unwrap();
        path
    });
    let direct = format!("https://127.0.0.1:{port}/echo");
    let led = format!("http://127.0.0.1:{}/echo", leading_to(direct.clone()));
    let call = |address: &str, certificates: &Path| {
        let mut command = Command::new(Programs::find().unwrap().holdfast());
        command.env("HOLDFAST_HOME", home.home()).env("HOLDFAST_POOL", home.pool());
        command.env("SSL_CERT_FILE", certificates).env_remove("SSL_CERT_DIR");
        let pinned = format!("{address}#sha256={}", sha256(&program));
        let output = command.args(["call", &pinned, "reverse", "abc"]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), error)
    };
    let kept = home.home().join("applets").join(sha256(&program));
    for address in [&direct, &led] {
        let (code, _, error) = call(address, &foreign);
        assert!(code == Some(127) && error.contains("cannot fetch"), "{address}: {error}");
        assert!(!kept.exists(), "{address}");
        let (code, said, error) = call(address, &trusted);
        assert_eq!((code, said.as_str()), (Some(0), "cba"), "{address}: {error}");
        // The next one is fetched again.
        std::fs::remove_file(&kept).unwrap();
    }
}
