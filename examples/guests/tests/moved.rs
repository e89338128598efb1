//! The service that page 21 of the book moves from tokio: its diff is that of the two programs, and both
//! serve the same.

use std::{
    env,
    io::{BufRead, BufReader, Read},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const PAGE: &str = include_str!("../../../docs/21-bring-your-own-crates.md");

#[test]
fn the_diff_of_the_page_makes_one_program_of_the_other() {
    let diff = PAGE.split("```diff\n").nth(1).expect("the page has a diff");
    let diff = diff.split("```").next().expect("split gives one");
    let side = |without: char| -> String {
        let lines = diff.lines().filter(|line| !line.starts_with(without));
        lines
            .map(|line| format!("{}\n", line.get(1..).unwrap_or_default()))
            .collect()
    };
    assert_eq!(side('+'), include_str!("../examples/on-tokio.rs"));
    assert_eq!(side('-'), include_str!("../examples/on-trapline.rs"));
}

/// An example of this package, as a process that ends with this.
struct Service {
    child: Child,
    url: String,
}

impl Service {
    fn start(name: &str) -> Self {
        let test = env::current_exe().expect("a test is a file");
        let built: PathBuf = test
            .ancestors()
            .nth(2)
            .expect("tests are in deps")
            .join("examples");
        let mut child = Command::new(built.join(Path::new(name)))
            .stdout(Stdio::piped())
            .spawn()
            .expect("`cargo test` alone builds the examples; before `--test moved`, `cargo build --examples`");
        let output = child.stdout.as_mut().expect("it is a pipe");
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it is text");
        let addr = line
            .trim()
            .strip_prefix("listening on ")
            .expect("it tells where");
        let url = format!("http://{addr}/");
        Self { child, url }
    }

    fn answers(&self) -> String {
        let mut urls = vec![self.url.clone(); 3];
        urls.push(format!("{}no", self.url));
        let output = Command::new("curl")
            .args(["-s", "-w", "%{http_code} %{content_type}\n"])
            .args(urls)
            .output()
            .expect("there is a curl");
        String::from_utf8(output.stdout).expect("it is text")
    }

    /// Interrupts it. Returns what it has still to say.
    fn stop(mut self) -> String {
        let id = self.child.id().to_string();
        let kill = Command::new("kill").args(["-INT", &id]).status();
        assert!(kill.expect("there is a kill").success());
        let status = self.child.wait().expect("it is a child");
        assert!(status.success(), "{status}");
        let mut rest = String::new();
        let output = self.child.stdout.as_mut().expect("it is a pipe");
        output.read_to_string(&mut rest).expect("it is text");
        rest
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn both_services_answer_the_same_and_end_at_an_interrupt() {
    let ran = ["on-tokio", "on-trapline"].map(|name| {
        let service = Service::start(name);
        let answers = service.answers();
        // A client that has not ended its connection keeps neither from its end.
        let addr = service.url["http://".len()..].trim_end_matches('/');
        let _idle = TcpStream::connect(addr).expect("it listens");
        assert_eq!(
            answers.matches("hello\n200 text/plain").count(),
            3,
            "{answers}"
        );
        assert_eq!(service.stop(), "");
        answers
    });
    assert_eq!(ran[0], ran[1]);
}
