//! The arguments of `holdfast keeper`, as clap reads them. Data only: nothing is looked up or
//! opened here.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use holdfast_command::exit::CODES;
use holdfast_keeper::Served;
use holdfast_region::RegionName;

use holdfast_command::size::parse_size;
use holdfast_command::time::parse_time;

const HELP: &str = "\
Examples:
  holdfast keeper run                        # until SIGTERM; a unit for systemd is in packaging/systemd
  holdfast keeper flush                      # save all heaps and databases now
  holdfast keeper status --watch 2s
  holdfast keeper metrics                    # for Prometheus

Everything works without a keeper. With one, heaps in memory are saved when the power button is held, the battery runs \
out, SIGTERM or SIGPWR comes, and from time to time; and images that nobody uses leave the pool when it is full.";

const RUN_HELP: &str = "\
Examples:
  holdfast keeper run --profile phone
  holdfast keeper run --pool-limit 512MiB
  holdfast keeper run --loss-window 10s --write-rate 1MiB --first diary --first contacts
  holdfast keeper run --serve --serve-to 1000,1001 --user-bytes 128MiB

It saves everything on SIGTERM and SIGPWR, while the power button is held, and when a battery is nearly empty or a UPS is in \
use. What did not fit into the time is told on standard error.

With --serve, programs of other users get regions of their own from it: they set HOLDFAST_KEEPER to the socket. Nobody but this \
user and root is served unless --serve-to says so, because what users have is memory of the whole machine.";

/// Save heaps when the machine is about to go, and keep the pool small
#[derive(Debug, Parser)]
#[command(name = "holdfast-keeper", bin_name = "holdfast keeper", version, after_help = format!("{HELP}\n\n{CODES}"), max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look after heaps and SQLite databases until SIGTERM
    #[command(after_help = RUN_HELP)]
    Run(Box<RunArgs>),
    /// Save all heaps and databases now, and tell what was not
    #[command(after_help = "Example:\n  holdfast keeper flush --json")]
    Flush(AskArgs),
    /// Say what the keeper does, and which heaps and databases are how long unsaved
    #[command(after_help = "Example:\n  holdfast keeper status --watch 2s")]
    Status(StatusArgs),
    /// Print the status as Prometheus reads it
    #[command(
        after_help = "Example:\n  holdfast keeper metrics > /var/lib/node_exporter/holdfast.prom"
    )]
    Metrics(SocketArgs),
    /// Let go on what a keeper that was killed had stopped, when standard input ends
    #[command(hide = true)]
    Guard,
    /// Print findings for `holdfast doctor`
    #[command(hide = true)]
    Doctor(DoctorArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON, which is the only form
    #[arg(long, required = true)]
    json: bool,
}

/// Limits with a name
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ProfileArg {
    /// 20 MB of pool, little writing
    Phone,
    /// A quarter of the memory of the machine, or of the control group
    Desktop,
}

#[derive(Debug, Args)]
pub(crate) struct SocketArgs {
    /// Where the keeper listens [default: keeper.sock in the pool]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Limits to begin with
    #[arg(long, value_enum, default_value = "desktop")]
    pub(crate) profile: ProfileArg,
    /// How large the pool may be: a size, a part of the memory (25%), or none
    #[arg(long, value_name = "SIZE", value_parser = parse_limit)]
    pub(crate) pool_limit: Option<LimitArg>,
    /// How long the machine still runs when it is about to go
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) emergency: Option<Duration>,
    /// What an open heap or database may lose if the machine goes without a word
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) loss_window: Option<Duration>,
    /// What is written to the disk over a long time, in a second
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) write_rate: Option<u64>,
    /// A heap that is saved before others; may be repeated
    #[arg(long, value_name = "NAME", value_parser = RegionName::parse_any)]
    pub(crate) first: Vec<RegionName>,
    /// Never stop a program for a copy, but in an emergency
    #[arg(long)]
    pub(crate) never_stop: bool,
    /// A device with a power button; may be repeated [default: all that have one]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) button: Vec<PathBuf>,
    /// How long the power button must be held
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) button_hold: Duration,
    /// Where batteries are
    #[arg(long, value_name = "DIR", default_value = "/sys/class/power_supply")]
    pub(crate) power_supply: PathBuf,
    /// A battery with so many percent is nearly empty
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) battery: u8,
    /// Serve regions to other users' programs at this socket
    #[arg(
        long,
        value_name = "SOCKET",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/run/holdfast/served.sock"
    )]
    pub(crate) serve: Option<PathBuf>,
    /// Users that are served: numbers with commas between them, or all
    #[arg(long, value_name = "UIDS", value_parser = parse_users, requires = "serve")]
    pub(crate) serve_to: Option<Served>,
    /// What the limits of one user's regions may be together
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size, requires = "serve")]
    pub(crate) user_bytes: u64,
    /// How many regions one user may have
    #[arg(long, value_name = "COUNT", default_value_t = 64, requires = "serve")]
    pub(crate) user_regions: u64,
    /// How many connections one user may have
    #[arg(long, value_name = "COUNT", default_value_t = 16, requires = "serve")]
    pub(crate) user_connections: usize,
    /// How many requests of one user are answered before others have their turn
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "serve", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) user_requests: u16,
    /// What the limits of all users' regions may be together
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size, requires = "serve")]
    pub(crate) serve_bytes: u64,
    /// Write metrics to this file, for a collector of text files
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// Again and again, at this interval
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) watch: Option<Duration>,
}

/// How large the pool may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitArg {
    Bytes(u64),
    Percent(u8),
    None,
}

fn parse_limit(text: &str) -> Result<LimitArg, String> {
    if text == "none" {
        return Ok(LimitArg::None);
    }
    match text.strip_suffix('%').map(str::parse) {
        Some(Ok(percent @ 1..=100)) => Ok(LimitArg::Percent(percent)),
        Some(_) => Err(format!("{text:?} is no part; write a number of 1 to 100 and a %")),
        None => parse_size(text).map(LimitArg::Bytes),
    }
}

fn parse_users(text: &str) -> Result<Served, String> {
    if text == "all" {
        return Ok(Served::All);
    }
    let users: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
    users.map(Served::Users).map_err(|_| {
        format!("{text:?} names no users; write their numbers with commas between them (id -u NAME), or all")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_numbers_or_all() {
        assert_eq!(parse_users("1000,7"), Ok(Served::Users(vec![1000, 7])));
        assert_eq!(parse_users("all"), Ok(Served::All));
        for text in ["", "alice", "7,", "-1", "7 8"] {
            assert!(parse_users(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pool_limit_is_a_size_a_part_or_none() {
        assert_eq!(parse_limit("20MiB"), Ok(LimitArg::Bytes(20 << 20)));
        assert_eq!(parse_limit("25%"), Ok(LimitArg::Percent(25)));
        assert_eq!(parse_limit("none"), Ok(LimitArg::None));
        for text in ["0%", "101%", "%", "much"] {
            assert!(parse_limit(text).is_err(), "{text}");
        }
    }
}
