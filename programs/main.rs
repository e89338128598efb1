//! The binary `trapline`: its programs, under the command line of `trapline-cli`.
//!
//! It uses the public API only. A binary with programs of your own looks the same.

mod alive;
mod ask;
mod average;
mod callbacks;
mod cases;
mod chat;
mod countdown;
mod echo;
mod fake_io;
mod filters;
mod http_get;
mod httpd;
mod interactive;
mod inversion;
mod jobs;
mod kv;
mod lists;
mod parts;
mod producer_consumer;
mod promise;
mod proxy;
mod resp;
mod serve;
mod sleepers;
mod subroutines;
mod supervised;
mod swarm;
mod tasks;
mod timers;
mod udp_echo;
mod upper;
mod wal;

use std::process::ExitCode;

use trapline_cli::{App, program};

fn main() -> ExitCode {
    App::new([])
        .group(
            "The course",
            [
                program::<parts::Parts>("parts"),
                program::<tasks::Multitask>("multitask"),
                program::<tasks::Tids>("tids"),
                program::<tasks::Kill>("kill"),
                program::<tasks::Wait>("wait"),
                program::<alive::Alive>("alive"),
                program::<countdown::Countdown>("countdown"),
                program::<callbacks::Callbacks>("callbacks"),
                program::<producer_consumer::ProducerConsumer>("producer-consumer"),
                program::<average::Average>("average"),
                program::<promise::Promises>("promise"),
                program::<lists::Lists>("lists"),
                program::<timers::Timers>("timers"),
                program::<sleepers::Sleepers>("sleepers"),
                program::<fake_io::FakeIo>("fake-io"),
                program::<subroutines::Subroutines>("subroutines"),
            ],
        )
        .group(
            "Servers and clients",
            [
                program::<echo::Echo>("echo"),
                program::<udp_echo::UdpEcho>("udp-echo"),
                program::<swarm::Swarm>("swarm"),
                program::<http_get::HttpGet>("http-get"),
                program::<httpd::Httpd>("httpd"),
                program::<proxy::Proxy>("proxy"),
                program::<chat::Chat>("chat"),
                program::<supervised::Supervised>("supervised"),
                program::<kv::Kv>("kv"),
                program::<ask::Ask>("ask"),
                program::<wal::Wal>("wal"),
            ],
        )
        .group(
            "A shell and its filters",
            [
                trapline_cli::shell(),
                program::<upper::Upper>("upper"),
                program::<filters::cat::Cat>("cat"),
                program::<filters::wc::Wc>("wc"),
                program::<filters::grep::Grep>("grep"),
                program::<filters::head::Head>("head"),
                program::<filters::seq::Seq>("seq"),
                program::<filters::tee::Tee>("tee"),
                program::<filters::yes::Yes>("yes"),
                program::<filters::say::Say>("say"),
                program::<filters::ls::Ls>("ls"),
                program::<filters::rm::Rm>("rm"),
            ],
        )
        .group(
            "Scheduling",
            [
                program::<jobs::Jobs>("jobs"),
                program::<inversion::Inversion>("inversion"),
                program::<interactive::Interactive>("interactive"),
            ],
        )
        .group(
            "What goes wrong",
            [
                program::<cases::starved::Starved>("starved"),
                program::<cases::deadlock::Deadlock>("deadlock"),
                program::<cases::lost_wakeup::LostWakeup>("lost-wakeup"),
                program::<cases::slow_reader::SlowReader>("slow-reader"),
                program::<cases::convoy::Convoy>("convoy"),
                program::<cases::gossip::Gossip>("gossip"),
                program::<cases::stuck_server::StuckServer>("stuck-server"),
                program::<cases::slow_upstream::SlowUpstream>("slow-upstream"),
            ],
        )
        .main()
}
