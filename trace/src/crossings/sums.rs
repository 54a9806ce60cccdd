//! The sums of what crossed sandboxes: `join` adds each crossing with the system calls inside it,
//! and takes the document of all of them at the end.

use std::collections::BTreeMap;

use super::calls::{CallKind, KeptCall};
use super::document::{
    AppletCrossings, AppletKind, Crossed, Crossings, Function, Gate, Kernel, Outside, RunPart,
};

/// System calls by kind.
#[derive(Debug, Default)]
pub(super) struct KernelSums(BTreeMap<u16, KernelSum>);

#[derive(Debug, Default)]
struct KernelSum {
    calls: u64,
    errors: u64,
    wall_ns: u64,
    awake_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct CrossedSum {
    pub(super) crossings: u64,
    pub(super) wall_ns: u64,
    pub(super) kernel: KernelSums,
}

#[derive(Debug, Default)]
pub(super) struct FunctionSum {
    pub(super) wall_ns: u64,
    /// How many crossings each call had.
    pub(super) each: Vec<u64>,
    pub(super) crossed: BTreeMap<(Gate, String), CrossedSum>,
    pub(super) host: KernelSums,
}

#[derive(Debug, Default)]
pub(super) struct AppletSum {
    pub(super) started: u64,
    pub(super) functions: BTreeMap<String, FunctionSum>,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) applets: BTreeMap<(AppletKind, String), AppletSum>,
    pub(super) outside: BTreeMap<RunPart, KernelSums>,
    pub(super) own_calls: u64,
    pub(super) own_ns: u64,
    pub(super) other_calls: u64,
    pub(super) notes: Vec<String>,
}

impl KernelSums {
    pub(super) fn add(&mut self, call: &KeptCall) {
        let sum = self.0.entry(call.kind).or_default();
        sum.calls += 1;
        sum.errors += u64::from(call.has_failed);
        sum.wall_ns = sum.wall_ns.saturating_add(call.wall_ns);
        sum.awake_ns = sum.awake_ns.saturating_add(call.awake_ns);
    }

    fn total(&self) -> (u64, u64) {
        let add = |(calls, ns): (u64, u64), sum: &KernelSum| {
            (calls + sum.calls, u64::saturating_add(ns, sum.wall_ns))
        };
        self.0.values().fold((0, 0), add)
    }

    fn into_rows(self, kinds: &[CallKind]) -> Vec<Kernel> {
        let row = |(kind, sum): (u16, KernelSum)| {
            let kind = kinds.get(usize::from(kind))?;
            Some(Kernel {
                name: kind.name.clone(),
                class: kind.subclass.class(),
                subclass: kind.subclass,
                calls: sum.calls,
                errors: sum.errors,
                wall_ns: sum.wall_ns,
                awake_ns: sum.awake_ns,
            })
        };
        let mut rows: Vec<_> = self.0.into_iter().filter_map(row).collect();
        rows.sort_by(|one, two| two.calls.cmp(&one.calls).then_with(|| one.name.cmp(&two.name)));
        rows
    }
}

impl FunctionSum {
    fn into_row(self, name: String, kinds: &[CallKind]) -> Function {
        let (mut kernel_calls, mut kernel_ns) = self.host.total();
        let (mut crossings, mut crossings_ns) = (0, 0_u64);
        let mut crossed = Vec::new();
        for ((by, name), sum) in self.crossed {
            let (calls, ns) = sum.kernel.total();
            (kernel_calls, kernel_ns) = (kernel_calls + calls, kernel_ns.saturating_add(ns));
            (crossings, crossings_ns) =
                (crossings + sum.crossings, crossings_ns.saturating_add(sum.wall_ns));
            let kernel = sum.kernel.into_rows(kinds);
            crossed.push(Crossed {
                name,
                by,
                crossings: sum.crossings,
                wall_ns: sum.wall_ns,
                kernel,
            });
        }
        crossed.sort_by(|one, two| {
            two.crossings.cmp(&one.crossings).then_with(|| one.name.cmp(&two.name))
        });
        Function {
            name,
            calls: self.each.len() as u64,
            wall_ns: self.wall_ns,
            crossings,
            crossings_min: self.each.iter().copied().min().unwrap_or(0),
            crossings_max: self.each.iter().copied().max().unwrap_or(0),
            crossings_ns,
            kernel_calls,
            kernel_ns,
            crossed,
            host: self.host.into_rows(kinds),
        }
    }
}

impl Sums {
    pub(super) fn into_document(self, kinds: &[CallKind]) -> Crossings {
        let applet = |((kind, name), sum): ((AppletKind, String), AppletSum)| {
            let rows = sum.functions.into_iter().map(|(name, sum)| sum.into_row(name, kinds));
            let mut functions: Vec<_> = rows.collect();
            functions.sort_by(|one, two| {
                let key = |row: &Function| (row.calls > 0, row.wall_ns);
                key(two).cmp(&key(one)).then_with(|| one.name.cmp(&two.name))
            });
            AppletCrossings { name, kind, started: sum.started, functions }
        };
        let outside = |(when, kernel): (RunPart, KernelSums)| {
            let (kernel_calls, kernel_ns) = kernel.total();
            Outside { when, kernel_calls, kernel_ns, kernel: kernel.into_rows(kinds) }
        };
        Crossings {
            applets: self.applets.into_iter().map(applet).collect(),
            outside: self.outside.into_iter().map(outside).collect(),
            own_calls: self.own_calls,
            own_ns: self.own_ns,
            other_calls: self.other_calls,
            notes: self.notes,
        }
    }
}
