//! rustls for guests.
//!
//! The random numbers of ring come from the system, so two runs of one seed differ, and a tape of such a
//! server does not replay. The provider here draws all of its numbers from 32 bytes. Of ring's own randomness
//! nothing is left then: the key exchange is another one, and a key of Ed25519 signs without random numbers.
//! A key of ECDSA or RSA would not. Only TLS 1.3 is offered.

use std::{
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use futures::{AsyncRead, AsyncWrite};
use futures_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, Error, NamedGroup, PeerMisbehaved, RootCertStore, ServerConfig,
        crypto::{
            ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret,
            SupportedKxGroup, ring,
        },
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime, pem::PemObject},
        time_provider::TimeProvider,
        version::TLS13,
    },
};
use rand_chacha::{
    ChaCha20Rng,
    rand_core::{RngCore, SeedableRng},
};
use trapline::Os;
use x25519_dalek::{PublicKey, StaticSecret};

/// 32 bytes from which all random numbers of a TLS provider follow.
pub type Entropy = [u8; 32];

/// Draws the bytes for a provider. With a seed they follow from it: such a connection is no secret, and
/// for tests only. Otherwise the system draws them, and a tape holds them.
pub async fn entropy(os: &mut Os, seed: Option<u64>) -> io::Result<Entropy> {
    if let Some(seed) = seed {
        let mut bytes = Entropy::default();
        ChaCha20Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
        return Ok(bytes);
    }
    let draw = || {
        let mut bytes = Entropy::default();
        let drawn = ring::default_provider().secure_random.fill(&mut bytes);
        drawn.is_ok().then_some(bytes)
    };
    let bytes = os.run_recorded(draw).await.map_err(io::Error::other)?;
    bytes.ok_or_else(|| io::Error::other("the system gives no random bytes"))
}

/// What decides whether two runs of a server send the same bytes.
#[derive(Clone)]
pub struct Provider {
    crypto: Arc<CryptoProvider>,
    time: Arc<dyn TimeProvider>,
}

impl Provider {
    /// A provider that draws from these bytes, and for which the time stays as it is now: for lives of
    /// tickets and certificates. Leaks some hundred bytes, since rustls wants its parts to live for ever.
    pub async fn seeded(os: &mut Os, entropy: Entropy) -> Self {
        let drawn: &'static Drawn =
            Box::leak(Box::new(Drawn(Mutex::new(ChaCha20Rng::from_seed(entropy)))));
        let mut crypto = ring::default_provider();
        crypto.secure_random = drawn;
        crypto.kx_groups = vec![Box::leak(Box::new(X25519(drawn)))];
        Self::new(os, crypto).await
    }

    /// The provider of ring as it is. Its random numbers are those of the system.
    pub async fn unseeded(os: &mut Os) -> Self {
        Self::new(os, ring::default_provider()).await
    }

    async fn new(os: &mut Os, crypto: CryptoProvider) -> Self {
        let now = os.wall_clock().await;
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        Self {
            crypto: Arc::new(crypto),
            time: Arc::new(Fixed(UnixTime::since_unix_epoch(now))),
        }
    }

    /// What accepts connections with this certificate. It offers HTTP/2 and HTTP/1.1.
    pub fn acceptor(&self, identity: Identity) -> Result<TlsAcceptor, Error> {
        let builder = ServerConfig::builder_with_details(self.crypto.clone(), self.time.clone());
        let builder = builder
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth();
        let mut config = builder.with_single_cert(identity.certificates, identity.key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// What connects to servers with a certificate of these authorities.
    pub fn connector(&self, roots: Vec<CertificateDer<'static>>) -> Result<TlsConnector, Error> {
        let mut store = RootCertStore::empty();
        for root in roots {
            store.add(root)?;
        }
        let builder = ClientConfig::builder_with_details(self.crypto.clone(), self.time.clone());
        let builder = builder.with_protocol_versions(&[&TLS13])?;
        let mut config = builder.with_root_certificates(store).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").finish_non_exhaustive()
    }
}

/// A server's certificates and its key.
#[derive(Debug)]
pub struct Identity {
    pub certificates: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    /// A certificate that signs itself, of a key of Ed25519 that is these bytes.
    pub fn of_bytes(key: &[u8; 32], names: &[&str]) -> Result<Self, rcgen::Error> {
        // RFC 8410: what is before the bytes of such a key.
        const HEAD: &[u8] = &[
            0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
        ];
        let key = PrivatePkcs8KeyDer::from([HEAD, key].concat());
        let pair = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&key, &rcgen::PKCS_ED25519)?;
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let certificate = rcgen::CertificateParams::new(names)?.self_signed(&pair)?;
        Ok(Self {
            certificates: vec![certificate.der().clone()],
            key: PrivateKeyDer::Pkcs8(key),
        })
    }

    /// Reads two files. A tape holds their content.
    pub async fn read(os: &mut Os, certificates: &str, key: &str) -> io::Result<Self> {
        let certificates = roots(os, certificates).await?;
        let text = read(os, key).await?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(io::Error::other)?;
        Ok(Self { certificates, key })
    }
}

/// Reads the certificates of a file. A tape holds its content.
pub async fn roots(os: &mut Os, path: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = read(os, path).await?;
    let all = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    all.map_err(|error| io::Error::other(format!("{path}: {error}")))
}

async fn read(os: &mut Os, path: &str) -> io::Result<String> {
    let name = path.to_string();
    let read = move || std::fs::read_to_string(name).map_err(|error| error.to_string());
    let text = os.run_recorded(read).await.map_err(io::Error::other)?;
    text.map_err(|error| io::Error::other(format!("{path}: {error}")))
}

#[derive(Debug)]
struct Drawn(Mutex<ChaCha20Rng>);

impl SecureRandom for Drawn {
    fn fill(&self, buf: &mut [u8]) -> Result<(), GetRandomFailed> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fill_bytes(buf);
        Ok(())
    }
}

/// The key exchange X25519 with drawn keys: ring's own draws from the system.
#[derive(Debug)]
struct X25519(&'static Drawn);

impl SupportedKxGroup for X25519 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut bytes = [0; 32];
        self.0.fill(&mut bytes)?;
        let secret = StaticSecret::from(bytes);
        let public = PublicKey::from(&secret);
        Ok(Box::new(Exchange { secret, public }))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

struct Exchange {
    secret: StaticSecret,
    public: PublicKey,
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let peer: Result<[u8; 32], _> = peer.try_into();
        let peer = peer.map_err(|_| PeerMisbehaved::InvalidKeyShare)?;
        let shared = self.secret.diffie_hellman(&PublicKey::from(peer));
        // A key of low order is one that anybody could have chosen.
        match shared.was_contributory() {
            true => Ok(SharedSecret::from(&shared.as_bytes()[..])),
            false => Err(PeerMisbehaved::InvalidKeyShare.into()),
        }
    }

    fn pub_key(&self) -> &[u8] {
        self.public.as_bytes()
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

#[derive(Debug)]
struct Fixed(UnixTime);

impl TimeProvider for Fixed {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

/// The traits of hyper for a stream with those of futures: TLS.
#[derive(Debug)]
pub struct HyperIo<S>(pub S);

impl<S: AsyncRead + Unpin> hyper::rt::Read for HyperIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // The cursor gives no initialised memory without unsafe code.
        let mut piece = [0; 8192];
        let room = buf.remaining().min(piece.len());
        let read = Pin::new(&mut self.0).poll_read(cx, &mut piece[..room]);
        read.map_ok(|n| buf.put_slice(&piece[..n]))
    }
}

impl<S: AsyncWrite + Unpin> hyper::rt::Write for HyperIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}
