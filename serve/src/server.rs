//! The server: its routes, and its life from the listening socket to the last closed heap.

use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State, WebSocketUpgrade};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use holdfast_fetch::{AppletCache, CacheError};
use holdfast_identity::GivenName;
use holdfast_region::{NameSpace, Places};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::applets::Host;
use crate::connection::{Connection, read_bytes_max};
use crate::consent::Consent;
use crate::counted::{Counter, Share};
use crate::discretion::{Notices, for_page};
use crate::files::{Files, text};
use crate::gate;
use crate::limits::ServeLimits;
use crate::listener::{Activity, LoopbackListener, Serving};
use crate::message::Kind;
use crate::open::Opener;
use crate::origin::Origin;
use crate::record::OriginRecord;
use crate::token::Tokens;

/// How long applets may take to end with the server, their heaps included.
const END: Duration = Duration::from_secs(10);
/// How long other answers may take then.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);
/// Threads that serve; applets have theirs.
const THREADS: usize = 2;

/// What is served, and to whom.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// The directory with the page.
    pub web: PathBuf,
    /// The address, one of 127.0.0.0/8 or ::1. Port 0 is any free one.
    pub listen: SocketAddr,
    /// What the applets of the own pages are called; else their directory's name is theirs.
    pub app: Option<GivenName>,
    /// Other origins that may run applets while this server runs.
    pub allow: Vec<Origin>,
    /// Ask the user on the terminal about origins that are not known.
    pub asks: bool,
    /// What pages may use up.
    pub limits: ServeLimits,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is not one of this machine alone.
    #[error(
        "{address} can be reached from other machines, and whoever reaches the server may run programs here; use 127.0.0.1:PORT"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The address is one of this machine, and no browser gets there.
    #[error("no page can be opened at {address}: {reason}; use 127.0.0.1:PORT with another port")]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// Why not.
        reason: &'static str,
    },
    /// The address cannot be used.
    #[error(
        "cannot listen at {address}: {source}; choose another port (--listen 127.0.0.1:0 takes a free one)"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The directory cannot be used.
    #[error("cannot serve {}: {source}; check the directory after --web", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The directory has a name that is too long for one of applets.
    #[error("{} cannot be what its applets are called; name them with --app NAME", path.display())]
    Name {
        /// The directory.
        path: PathBuf,
    },
    /// The cache of applets cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The system gives no threads.
    #[error("cannot start the server's threads: {0}")]
    Threads(#[source] io::Error),
}

/// Stops a server, from any thread.
#[derive(Debug, Clone)]
pub struct Stopper(CancellationToken);

impl Stopper {
    /// Ends all connections and their applets; [`Server::run`] returns then.
    pub fn stop(&self) {
        self.0.cancel();
    }
}

/// A server that listens.
pub struct Server {
    runtime: Runtime,
    listener: LoopbackListener,
    shared: Arc<Shared>,
}

struct Shared {
    /// The server's name.
    own_host: String,
    app: GivenName,
    files: Files,
    consent: Consent,
    tokens: Arc<Tokens>,
    host: Arc<Host>,
    connections: Arc<Counter<GivenName>>,
    /// What the user was told about origins that were refused.
    refusals: Notices,
    stop: CancellationToken,
}

impl Server {
    /// Listens; nothing is answered before [`Server::run`].
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn bind(config: ServeConfig, places: Places) -> Result<Server, ServeError> {
        // An address of IPv4 may be written as one of IPv6.
        let address = SocketAddr::new(config.listen.ip().to_canonical(), config.listen.port());
        if !address.ip().is_loopback() {
            return Err(ServeError::NotLoopback { address });
        }
        if let Some(reason) = gate::why_unreachable(address) {
            return Err(ServeError::Unreachable { address, reason });
        }
        let at = |source| ServeError::Directory { path: config.web.clone(), source };
        let web = config.web.canonicalize().map_err(at)?;
        let files = Files::open(&web).map_err(at)?;
        let app = match config.app {
            Some(app) => app,
            None => name_of(&web).ok_or(ServeError::Name { path: web })?,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("serve")
            .enable_all()
            .build()
            .map_err(ServeError::Threads)?;
        let listener = runtime
            .block_on(LoopbackListener::bind(address, &config.limits))
            .map_err(|source| ServeError::Listen { address, source })?;
        let limits = config.limits;
        let shared = Shared {
            own_host: gate::own_host(listener.address()),
            app,
            files,
            consent: Consent::new(config.allow, OriginRecord::of(&places), config.asks),
            tokens: Arc::new(Tokens::new(limits.token_life)),
            connections: Counter::new(
                Share::Fixed(limits.connections_per_origin),
                limits.connections,
            ),
            refusals: Notices::default(),
            stop: CancellationToken::new(),
            host: Arc::new(Host {
                cache: AppletCache::of(&places)?,
                applets: Counter::new(Share::Fair, limits.applets),
                opener: Arc::new(Opener {
                    names: NameSpace::new(places),
                    limits,
                    notices: Notices::default(),
                    making: Mutex::new(()),
                }),
            }),
        };
        Ok(Server { runtime, listener, shared: Arc::new(shared) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// What its pages' addresses begin with: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.shared.own_host)
    }

    /// Stops it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.stop.clone())
    }

    /// Stops it on SIGINT and SIGTERM.
    ///
    /// # Errors
    /// What the kernel reports.
    pub fn stop_on_signals(&self) -> io::Result<()> {
        let _entered = self.runtime.enter();
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            let (mut signals, stop) = (signal(kind)?, self.shared.stop.clone());
            tokio::spawn(async move {
                signals.recv().await;
                stop.cancel();
            });
        }
        Ok(())
    }

    /// Serves until it is stopped. All applets are gone then, and their heaps closed.
    pub fn run(self) {
        let Server { runtime, listener, shared } = self;
        let stop = shared.stop.clone();
        runtime.block_on(async {
            let router = router(Arc::clone(&shared));
            let service = router.into_make_service_with_connect_info::<Activity>();
            let serving = axum::serve(listener, service)
                .with_graceful_shutdown(stop.clone().cancelled_owned());
            let serving = tokio::spawn(serving.into_future());
            stop.cancelled().await;
            let ended = async {
                while shared.connections.all() > 0 || shared.host.applets.all() > 0 {
                    tokio::time::sleep(LOOK).await;
                }
            };
            let _ = tokio::time::timeout(END, ended).await;
            let _ = tokio::time::timeout(LAST_ANSWERS, serving).await;
        });
        // A question on the terminal may still be open.
        runtime.shutdown_background();
    }
}

/// What the applets of a directory's pages are called: the address of the directory.
fn name_of(web: &Path) -> Option<GivenName> {
    let mut name = "file://".to_owned();
    for byte in web.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'_' | b'-' | b'+' | b'~' => name.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => name.push(char::from(*byte)),
            byte => name.push_str(&format!("%{byte:02X}")),
        }
    }
    GivenName::parse(&name).ok()
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/holdfast", get(connect))
        .route("/holdfast/token", post(give_token).options(preflight))
        .fallback(file)
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard))
        .with_state(shared)
}

/// In front of all routes: own host names only, and the headers of every answer.
async fn guard(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(activity): ConnectInfo<Activity>,
    mut request: Request,
    next: Next,
) -> Response {
    let serving = Arc::new(activity.serve(shared.host.opener.limits.idle_timeout));
    request.extensions_mut().insert(Arc::clone(&serving));
    let headers = request.headers();
    let mut answer = if !gate::is_for_us(headers, &shared.own_host) {
        let words = format!("this server is http://{}/; use this address", shared.own_host);
        text(StatusCode::MISDIRECTED_REQUEST, &words)
    } else if gate::is_for_service_worker(headers) {
        text(StatusCode::FORBIDDEN, "service workers are not served: they outlive the server")
    } else {
        next.run(request).await
    };
    gate::close_to_others(&mut answer);
    if matches!(answer.status(), StatusCode::MISDIRECTED_REQUEST | StatusCode::FORBIDDEN) {
        // Who is refused keeps no socket.
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

async fn file(
    State(shared): State<Arc<Shared>>,
    Extension(serving): Extension<Arc<Serving>>,
    request: Request,
) -> Response {
    shared.files.answer(request.method(), request.uri(), serving).await
}

async fn give_token(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let origin = match shared.admitted(&headers).await {
        Ok(origin) => origin,
        Err(words) => return text(StatusCode::FORBIDDEN, &words),
    };
    let mut answer = match shared.tokens.give(&origin) {
        Ok(Some(token)) => {
            let token: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
            Response::new(Body::from(token))
        }
        Ok(None) => text(StatusCode::TOO_MANY_REQUESTS, "too many tokens were not used yet"),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "no random bytes for a token"),
    };
    let headers = answer.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !gate::is_own_origin(&origin, &shared.own_host) {
        gate::open_to(&mut answer, &origin);
    }
    answer
}

/// A browser asks first whether a page may send its request for a token.
async fn preflight(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    match shared.admitted(&headers).await {
        Ok(origin) => {
            let mut answer = text(StatusCode::NO_CONTENT, "");
            gate::open_to_request(&mut answer, &origin, &headers);
            answer
        }
        Err(words) => text(StatusCode::FORBIDDEN, &words),
    }
}

async fn connect(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(activity): ConnectInfo<Activity>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let page = match shared.page(&headers) {
        Ok(page) => page,
        Err(words) => return text(StatusCode::FORBIDDEN, &words),
    };
    let (origin, page) = page;
    let Ok(counted) = shared.connections.take(&page) else {
        return text(
            StatusCode::TOO_MANY_REQUESTS,
            "too many connections; close other pages first",
        );
    };
    let connection = Connection {
        host: Arc::clone(&shared.host),
        tokens: Arc::clone(&shared.tokens),
        origin,
        page,
        stop: shared.stop.clone(),
    };
    activity.become_web_socket();
    let max = read_bytes_max(&shared.host.opener.limits);
    upgrade.max_message_size(max).max_frame_size(max).on_upgrade(move |socket| async move {
        connection.run(socket).await;
        drop(counted);
    })
}

impl Shared {
    /// The origin of a request for a token, if its page may have one; the user may be asked.
    ///
    /// # Errors
    /// In words, for the answer.
    async fn admitted(&self, headers: &HeaderMap) -> Result<Origin, String> {
        let origin = gate::origin(headers)?;
        gate::check_site(headers, &origin, &self.own_host)?;
        if gate::is_own_origin(&origin, &self.own_host) {
            return Ok(origin);
        }
        match self.consent.decide(&origin).await {
            Ok(()) => Ok(origin),
            Err(words) => Err(self.refused(&origin, &words)),
        }
    }

    /// The origin of a connection and what its applets are called.
    ///
    /// # Errors
    /// In words, for the answer.
    fn page(&self, headers: &HeaderMap) -> Result<(Origin, GivenName), String> {
        let origin = gate::origin(headers)?;
        if gate::is_own_origin(&origin, &self.own_host) {
            return Ok((origin, self.app.clone()));
        }
        if !self.consent.is_allowed(&origin).map_err(|words| self.refused(&origin, &words))? {
            return Err(format!("{origin} may not run applets here"));
        }
        let name = origin.applet_name().map_err(|error| error.to_string())?;
        Ok((origin, name))
    }

    /// Tells the user once about an origin that was refused, and returns what of it its page gets,
    /// which cannot read the answer if it is of another origin.
    fn refused(&self, origin: &Origin, words: &str) -> String {
        self.refusals.tell(origin, &format!("refused a page: {words}"));
        for_page(Kind::Denied, words, None)
    }
}
