use std::{cmp::Reverse, error::Error, fs, path::PathBuf, str::FromStr, time::Duration};

use rand_pcg::{
    Pcg64Mcg,
    rand_core::{Rng, SeedableRng},
};
use trapline::Os;
use trapline_cli::{Program, duration};

/// Jobs that arrive, compute and wait: the work of scheduling textbooks
///
/// Each job is a task. It arrives by a timer, computes for its length, and waits for IO_TIME each
/// time it has computed for IO_EVERY. The command `lab` compares policies on them; `boot --summary`
/// shows when each was served.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  jobs                                     three jobs
  jobs --job 0s,100ms --job 10ms,10ms      a long job, and later a short one
  jobs --job '0s,1s;nice=-5' --job 0s,1s   two shares
  jobs --job 0s,50ms,10ms,5ms              a wait of 5 ms after each 10 ms
  jobs --random 20 --seed 7")]
pub(crate) struct Jobs {
    /// A job; can be repeated. SHARE is tickets=100, nice=5 or priority=3. Without jobs there are three: a
    /// long one, and two short ones that arrive 10 ms later
    #[arg(long, value_name = "ARRIVAL,LENGTH[,IO_EVERY,IO_TIME][;SHARE]...")]
    job: Vec<Job>,
    /// Read jobs from a file, a line each; # begins a comment
    #[arg(long, value_name = "FILE")]
    jobs_from: Option<PathBuf>,
    /// Make N jobs that arrive within 100 ms and compute for 1 to 100 ms
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    random: Option<u32>,
    /// The seed of --random
    #[arg(long, value_name = "S", default_value_t = 0, requires = "random")]
    seed: u64,
}

const TIMES: &str =
    "it takes ARRIVAL,LENGTH or ARRIVAL,LENGTH,IO_EVERY,IO_TIME, such as 0s,100ms,10ms,5ms";

/// The jobs if none is given.
const DEFAULT: [&str; 3] = ["0,60ms", "10ms,10ms", "10ms,20ms"];

/// The most jobs whose timers are set before the kernel looks at the clock.
const AT_ONCE: usize = 60;

/// A job, and its share of the processors.
#[derive(Clone, Copy, Debug, Default)]
struct Job {
    arrival: Duration,
    length: Duration,
    io_every: Duration,
    io_time: Duration,
    tickets: Option<u32>,
    nice: Option<i32>,
    priority: Option<i32>,
}

impl Program for Jobs {
    async fn main(mut self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        if self.job.is_empty() && self.jobs_from.is_none() && self.random.is_none() {
            self.job = DEFAULT.map(|job| job.parse().expect("it is a job")).into();
        }
        let mut jobs: Vec<(usize, Job)> = self.all()?.into_iter().enumerate().collect();
        if jobs.len() > AT_ONCE {
            // The first job must not compute before the last one has its timer.
            jobs.sort_by_key(|(_, job)| Reverse(job.arrival));
        }
        let mut tasks = Vec::new();
        let mut before = Job::default();
        for (at, job) in jobs {
            // The job inherits its share, so that it has it when it arrives.
            if job.tickets != before.tickets {
                os.set_tickets(job.tickets.unwrap_or(100)).await;
            }
            if job.nice != before.nice {
                os.set_nice(job.nice.unwrap_or(0)).await;
            }
            if job.priority != before.priority {
                os.set_priority(job.priority.unwrap_or(0)).await;
            }
            before = job;
            let main = async move |os: &mut Os| job.main(os).await;
            tasks.push(os.spawn_later(name(at), job.arrival, main).await?);
        }
        for task in tasks {
            os.wait(task).await?;
        }
        Ok(())
    }
}

impl Jobs {
    /// All jobs: those of the command line, of the file, and random ones.
    fn all(&self) -> Result<Vec<Job>, Box<dyn Error>> {
        let mut jobs = self.job.clone();
        if let Some(path) = &self.jobs_from {
            let file = path.display();
            let text = fs::read_to_string(path)
                .map_err(|error| format!("--jobs-from: cannot read {file}: {error}"))?;
            for (at, line) in text.lines().enumerate() {
                let job = line.split('#').next().unwrap_or_default().trim();
                if !job.is_empty() {
                    let job = job.parse();
                    let place = |error| format!("--jobs-from: {file}, line {}: {error}", at + 1);
                    jobs.push(job.map_err(place)?);
                }
            }
        }
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let mut millis = |most: u64| Duration::from_millis(random.next_u64() % most);
        jobs.extend((0..self.random.unwrap_or(0)).map(|_| Job {
            arrival: millis(100),
            length: millis(100) + Duration::from_millis(1),
            ..Job::default()
        }));
        if jobs.is_empty() {
            let what = "there are no jobs: give --job, such as --job 0s,100ms, or --random 10";
            return Err(what.into());
        }
        Ok(jobs)
    }
}

impl Job {
    async fn main(self, os: &mut Os) {
        let mut left = self.length;
        loop {
            let burst = match self.io_every {
                Duration::ZERO => left,
                every => every.min(left),
            };
            os.compute(burst).await;
            left -= burst;
            if left.is_zero() {
                return;
            }
            os.sleep(self.io_time).await;
        }
    }
}

/// The name of a job: A to Z, as in the textbooks, and then job-27.
fn name(at: usize) -> String {
    match u8::try_from(at) {
        Ok(at) if at < 26 => char::from(b'A' + at).to_string(),
        _ => format!("job-{}", at + 1),
    }
}

impl FromStr for Job {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(';');
        let times = parts.next().unwrap_or_default();
        let times: Vec<Duration> = times.split(',').map(time).collect::<Result<_, _>>()?;
        let (arrival, length, io_every, io_time) = match times[..] {
            [arrival, length] => (arrival, length, Duration::ZERO, Duration::ZERO),
            [arrival, length, io_every, io_time] => (arrival, length, io_every, io_time),
            _ => return Err(TIMES.into()),
        };
        let mut job = Self {
            arrival,
            length,
            io_every,
            io_time,
            ..Self::default()
        };
        if job.length.is_zero() {
            return Err("its length is zero: give a time such as 100ms".into());
        }
        for share in parts {
            job.set(share.trim())?;
        }
        Ok(job)
    }
}

impl Job {
    fn set(&mut self, share: &str) -> Result<(), String> {
        let (key, value) = share.split_once('=').unwrap_or((share, ""));
        let number = value.parse::<i32>();
        match (key, number) {
            ("tickets", Ok(number @ 1..)) => self.tickets = Some(number.unsigned_abs()),
            ("tickets", _) => return Err(format!("'{value}' is no number of tickets from 1")),
            ("nice", Ok(number @ -20..=19)) => self.nice = Some(number),
            ("nice", _) => return Err(format!("'{value}' is no nice value from -20 to 19")),
            ("priority", Ok(number)) => self.priority = Some(number),
            ("priority", _) => return Err(format!("'{value}' is no whole number")),
            _ => {
                let shares = "tickets=100, nice=5 and priority=3";
                return Err(format!("there is no share '{key}': there are {shares}"));
            }
        }
        Ok(())
    }
}

/// Reads a time; a bare 0 is one as well.
fn time(text: &str) -> Result<Duration, String> {
    match text.trim() {
        "0" => Ok(Duration::ZERO),
        text if text.starts_with('-') => {
            Err(format!("'{text}' is negative: give a time from 0s on"))
        }
        text => duration(text).map_err(|error| format!("'{text}' is no time: {error}")),
    }
}
