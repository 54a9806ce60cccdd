//! Measures the start of a jail, against `fork` and exec of the same program, from a small and from
//! a large host, and without each of its layers: `cargo run --release -p holdfast-jail --example
//! start_cost`. PROGRAM ends by itself, at once.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_jail::{Jail, Layer, Layers};

const ROUNDS: usize = 50;
const PAGE_BYTES: usize = 4096;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn fork_and_exec(program: &str) {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: the closure does nothing. That there is one makes the library fork, as hosts with one
    // have to.
    unsafe { command.pre_exec(|| Ok(())) };
    drop(command.status());
}

fn jail(program: &str, layers: Layers) {
    match Jail::new(program).layers(layers).spawn() {
        Ok(jailed) => drop(jailed.wait(None)),
        Err(error) => eprintln!("{error}"),
    }
}

fn main() {
    let program = std::env::args().nth(1).unwrap_or_else(|| "/bin/true".to_owned());
    for mib in [1, 1024] {
        let mut memory = vec![0_u8; mib << 20];
        memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            // In turns, so that what else the machine does falls on all alike.
            let runs: [&dyn Fn(); 3] =
                [&|| fork_and_exec(&program), &|| jail(&program, Layers::none()), &|| {
                    jail(&program, Layers::default())
                }];
            for (times, run) in times.iter_mut().zip(runs) {
                let started = Instant::now();
                run();
                times.push(started.elapsed());
            }
        }
        let [plain, bare, whole] = times.map(median);
        let ratio = |time: Duration| time.as_secs_f64() / plain.as_secs_f64();
        println!("a host with {mib} MiB, from the start to the end, median of {ROUNDS}:");
        println!("  fork and exec          {plain:>10.2?}");
        println!("  jail, no layer         {bare:>10.2?}  {:.2} times that", ratio(bare));
        println!("  jail, default layers   {whole:>10.2?}  {:.2} times that", ratio(whole));
        std::hint::black_box(&memory);
    }
    each_layer(&program);
}

/// What a start takes without each layer.
fn each_layer(program: &str) {
    let mut sets = vec![("with all layers", Layers::default())];
    let used = Layer::ALL.into_iter().filter(|layer| Layers::default().has(*layer));
    sets.extend(used.map(|layer| (layer.name(), Layers::default().without(layer))));
    let mut times = vec![Vec::new(); sets.len()];
    for _ in 0..ROUNDS {
        for (times, (_, layers)) in times.iter_mut().zip(&sets) {
            let started = Instant::now();
            let jailed = Jail::new(program).layers(*layers).spawn();
            times.push(started.elapsed());
            match jailed {
                Ok(jailed) => drop(jailed.wait(None)),
                Err(error) => eprintln!("{error}"),
            }
        }
    }
    println!("until the program runs, median of {ROUNDS}, and without:");
    for ((name, _), times) in sets.iter().zip(times) {
        println!("  {name:<22} {:>10.2?}", median(times));
    }
}
