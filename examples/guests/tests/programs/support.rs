//! What the tests of the programs have in common.

use std::{
    cell::RefCell,
    error::Error,
    ffi::OsStr,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    rc::Rc,
    time::Duration,
};

use trapline::{Answer, DeviceId, Event, Kernel, Os, Request, Tracer, World, forward_world};
use trapline_cli::Program;

/// A new directory of this test.
pub fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(path.join("disk")).unwrap();
    path
}

/// Writes a certificate of localhost and its key; returns their paths.
pub fn certificate(directory: &std::path::Path) -> (String, String) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let names = ["localhost", "127.0.0.1", "server"].map(String::from);
    let certificate = rcgen::CertificateParams::new(names)
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    (
        write("cert.pem", certificate.pem()),
        write("key.pem", key.serialize_pem()),
    )
}

/// The binary of the programs.
pub fn guests() -> Command {
    Command::new(env!("CARGO_BIN_EXE_guests"))
}

/// A program in a process of its own, which prints where it listens. The drop kills it.
pub struct Served {
    child: Child,
    printed: BufReader<ChildStdout>,
    pub addr: SocketAddr,
}

impl Served {
    /// Boots a program with these options and arguments.
    pub fn boot<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Self {
        let mut child = guests()
            .args(["boot", "-q"])
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        printed.read_line(&mut line).unwrap();
        let addr = line
            .trim()
            .strip_prefix("Listening at ")
            .expect("it listens");
        Self {
            addr: addr.parse().unwrap(),
            child,
            printed,
        }
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([format!("-{name}"), id])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for the end, and returns how it ended and what it printed since it listened.
    pub fn end(mut self) -> (ExitStatus, String) {
        let mut text = String::new();
        self.printed.read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap(), text)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs curl. Fails the test if there is none.
pub fn curl_output<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Output {
    let mut curl = Command::new("curl");
    let run = curl
        .args(["-sS", "--max-time", "30", "--noproxy", "*"])
        .args(words)
        .output();
    match run {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            panic!("these tests need the command curl, which is not installed")
        }
        run => run.unwrap(),
    }
}

/// The same for one that succeeds. Returns what it prints.
pub fn curl<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> String {
    let output = curl_output(words);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl: {told}");
    String::from_utf8(output.stdout).unwrap()
}

/// The events of a run.
#[derive(Clone, Default)]
pub struct Log(pub Rc<RefCell<String>>);

impl Tracer for Log {
    fn event(&mut self, event: &Event<'_>) {
        use std::fmt::Write;
        writeln!(self.0.borrow_mut(), "{event}").unwrap();
    }

    fn is_exact(&self) -> bool {
        false
    }
}

/// What a run has sent: the pieces in order, with their devices.
pub type Sent = Rc<RefCell<Vec<(DeviceId, Vec<u8>)>>>;

/// A world that notes what is sent.
pub struct Wire<W> {
    pub inner: W,
    pub sent: Sent,
}

impl<W: World> World for Wire<W> {
    fn io(&mut self, device: DeviceId, request: Request<'_>) -> io::Result<Answer> {
        let Request::Send(bytes) = request else {
            return self.inner.io(device, request);
        };
        let answer = self.inner.io(device, Request::Send(bytes));
        if let Ok(Answer::Bytes(n)) = answer {
            self.sent.borrow_mut().push((device, bytes[..n].to_vec()));
        }
        answer
    }

    forward_world!(inner: now, now_for_log, random, reseed, seed, reset, print, take_console);
    forward_world!(inner: wait, wait_for_threads, holds_tasks, is_idle, remote, submit);
    forward_world!(inner: spins, spin, net, choose);
}

/// Boots a program on a host, and again whenever the host restarts.
pub fn serve_on<P: Program + Clone>(kernel: &mut Kernel, host: &'static str, program: P) {
    fn boot<P: Program + Clone>(kernel: &mut Kernel, host: &str, program: &P) {
        let program = program.clone();
        // Its error names what chaos did to its disk, and a restart comes.
        let main = async move |os: &mut Os| drop(program.main(os).await);
        kernel.spawn_on(host, host, main).unwrap();
    }
    boot(kernel, host, &program);
    kernel
        .on_restart(host, move |kernel| boot(kernel, host, &program))
        .unwrap();
}

/// Tries until it succeeds, once a second.
pub async fn patiently<T, E: std::fmt::Debug>(
    foreign: &trapline::Foreign,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    for _ in 0..200 {
        if let Ok(value) = attempt().await {
            return value;
        }
        foreign.sleep(Duration::from_secs(1)).await;
    }
    panic!("200 attempts have failed");
}

pub type BoxError = Box<dyn Error + Send + Sync>;

/// What of a client's bytes a server answers with, by a plain socket.
pub fn exchange(addr: SocketAddr, first: &[u8]) -> std::net::TcpStream {
    let mut stream = std::net::TcpStream::connect(addr).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream.write_all(first).unwrap();
    stream
}

/// Bytes as text, as rustls reads it.
pub fn pem(label: &str, bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in bytes.chunks(48) {
        for three in line.chunks(3) {
            let number = three
                .iter()
                .fold(0, |number, byte| number << 8 | u32::from(*byte));
            let number = number << (8 * (3 - three.len()));
            for place in 0..4 {
                let letter = LETTERS[(number >> (18 - 6 * place)) as usize & 63];
                text.push(if place > three.len() {
                    '='
                } else {
                    letter.into()
                });
            }
        }
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}
