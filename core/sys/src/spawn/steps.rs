//! The list of a child's system calls, built step by step. Each step has a name, by which its
//! failure is told.
//!
//! Everything that a call points to is owned by the list, so nothing here is unsafe to use; and
//! there is no step for a call that would change the memory that parent and child share.

use std::any::Any;
use std::ffi::{CString, c_int, c_long};
use std::io;
use std::os::fd::RawFd;

use super::{Child, Expect, Item, Script};

/// From linux/capability.h.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
const SIGNALS: usize = 64;
const SIGNAL_SET_BYTES: usize = 8;
const SECBIT_ALL_LOCKED_NO_ROOT: usize = 0x2f;

/// A resource limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimit {
    /// `RLIMIT_…`.
    pub resource: u32,
    /// Soft and hard.
    pub value: u64,
}

/// What becomes of a mount's attributes, `MOUNT_ATTR_…`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MountChange {
    /// Those that are set.
    pub set: u64,
    /// Those that are cleared.
    pub clear: u64,
    /// Of the mounts below it, too.
    pub recursive: bool,
}

/// The list.
#[derive(Default)]
pub struct Steps {
    items: Vec<Item>,
    names: Vec<&'static str>,
    kept: Vec<Box<dyn Any + Send>>,
    meetings: u32,
}

#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_name_space: u64,
}

#[repr(C)]
struct KernelLimit {
    soft: u64,
    hard: u64,
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: c_int,
}

impl Steps {
    /// An empty list.
    #[must_use]
    pub fn new() -> Steps {
        Steps::default()
    }

    /// How many system calls there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The n-th call fails with this error number instead of being made. For tests.
    pub fn fail(&mut self, at: usize, errno: i32) {
        if let Some(item) = self.items.get_mut(at) {
            *item = Item::Fail(errno);
        }
    }

    /// Starts the child, with `flags` of `clone(2)` that make name spaces. The calling thread is
    /// the one with whose death the child asks to die.
    ///
    /// # Errors
    /// What `clone` says, or that there is no memory for a stack; the list has not begun then.
    pub fn start(self, flags: c_int) -> io::Result<Child> {
        let script = Script::new(self.items, self.kept)?;
        let blocked = Blocked::new()?;
        // SAFETY: the steps below keep the contract: their pointers are null or to what is in
        // `kept`, on the heap, with the types of their calls; none returns data but the ones whose
        // room is kept as well. All signals are blocked.
        let child = unsafe { script.start(flags, self.names) };
        drop(blocked);
        child
    }

    fn push(&mut self, name: &'static str, item: Item) {
        self.names.push(name);
        self.items.push(item);
    }

    fn call(&mut self, name: &'static str, number: c_long, arguments: &[usize], expect: Expect) {
        let mut all = [0; 6];
        for (to, from) in all.iter_mut().zip(arguments) {
            *to = *from;
        }
        self.push(name, Item::Call { number, arguments: all, expect });
    }

    fn plain(&mut self, name: &'static str, number: c_long, arguments: &[usize]) {
        self.call(name, number, arguments, Expect::Success);
    }

    /// Keeps a value on the heap; its address.
    fn keep<T: Send + 'static>(&mut self, value: T) -> usize {
        let value = Box::new(value);
        let address = &raw const *value as usize;
        self.kept.push(value);
        address
    }

    /// Keeps a string; the address of its first byte.
    fn text(&mut self, text: CString) -> usize {
        let address = text.as_ptr() as usize;
        self.kept.push(Box::new(text));
        address
    }

    /// Dies when the thread that started it does. A change of user takes this back. The parent may
    /// have died before that could be noticed; so an [`Steps::await_parent`] has to follow.
    pub fn die_with_parent(&mut self) {
        let signal = libc::SIGKILL as usize;
        self.plain(
            "die with the host",
            libc::SYS_prctl,
            &[libc::PR_SET_PDEATHSIG as usize, signal],
        );
    }

    /// Waits for [`Child::let_go`], or for the death of the parent, whose pidfd this is.
    pub fn await_parent(&mut self, pidfd: RawFd) {
        let alive = self.keep([libc::pollfd { fd: pidfd, events: libc::POLLIN, revents: 0 }]);
        self.meetings += 1;
        self.push("wait for the host", Item::AwaitParent { number: self.meetings, alive });
    }

    /// Leaves the session, and with it the terminal.
    pub fn new_session(&mut self) {
        self.plain("setsid", libc::SYS_setsid, &[]);
    }

    /// All signals have their default dispositions, and none is blocked.
    pub fn default_signals(&mut self) {
        let action = self.keep([0_u64; 4]);
        for signal in 1..=SIGNALS {
            if signal != libc::SIGKILL as usize && signal != libc::SIGSTOP as usize {
                let arguments = [signal, action, 0, SIGNAL_SET_BYTES];
                self.plain("default signal handling", libc::SYS_rt_sigaction, &arguments);
            }
        }
        let none = self.keep(0_u64);
        let arguments = [libc::SIG_SETMASK as usize, none, 0, SIGNAL_SET_BYTES];
        self.plain("unblock signals", libc::SYS_rt_sigprocmask, &arguments);
    }

    /// Files that it creates are no other process's.
    pub fn private_files(&mut self) {
        self.plain("umask", libc::SYS_umask, &[0o077]);
    }

    /// `mount(2)`.
    pub fn mount(
        &mut self,
        name: &'static str,
        source: CString,
        target: CString,
        kind: Option<CString>,
        flags: u64,
        data: Option<CString>,
    ) {
        let (source, target) = (self.text(source), self.text(target));
        let kind = kind.map_or(0, |kind| self.text(kind));
        let data = data.map_or(0, |data| self.text(data));
        self.plain(name, libc::SYS_mount, &[source, target, kind, flags as usize, data]);
    }

    /// `mount_setattr(2)`: sets and clears attributes, and makes the mount private.
    pub fn mount_attributes(&mut self, name: &'static str, path: CString, change: MountChange) {
        let MountChange { set, clear, recursive } = change;
        let propagation = libc::MS_PRIVATE;
        let attributes = self.keep(MountAttributes { set, clear, propagation, user_name_space: 0 });
        let path = self.text(path);
        let flags = if recursive { libc::AT_RECURSIVE as usize } else { 0 };
        let bytes = size_of::<MountAttributes>();
        let arguments = [libc::AT_FDCWD as usize, path, flags, attributes, bytes];
        self.plain(name, libc::SYS_mount_setattr, &arguments);
    }

    /// Makes a directory that may be there already.
    pub fn make_directory(&mut self, path: CString) {
        let path = self.text(path);
        let there = Expect::SuccessOr(libc::EEXIST);
        self.call("make a directory of the root", libc::SYS_mkdir, &[path, 0o755], there);
    }

    /// Makes an empty file that may be there already.
    pub fn make_file(&mut self, path: CString) {
        let path = self.text(path);
        let there = Expect::SuccessOr(libc::EEXIST);
        let mode = (libc::S_IFREG | 0o644) as usize;
        self.call("make a file of the root", libc::SYS_mknod, &[path, mode, 0], there);
    }

    /// Makes a symbolic link.
    pub fn make_link(&mut self, path: CString, target: CString) {
        let (path, target) = (self.text(path), self.text(target));
        self.call(
            "make a link of the root",
            libc::SYS_symlink,
            &[target, path],
            Expect::SuccessOr(libc::EEXIST),
        );
    }

    /// `chdir(2)`.
    pub fn change_directory(&mut self, path: CString) {
        let path = self.text(path);
        self.plain("chdir", libc::SYS_chdir, &[path]);
    }

    /// The working directory, a mount, becomes the root; the old root is in its directory `old`.
    pub fn change_root(&mut self, old: CString) {
        let (here, old) = (self.text(c".".to_owned()), self.text(old));
        self.plain("pivot_root", libc::SYS_pivot_root, &[here, old]);
        let root = self.text(c"/".to_owned());
        self.plain("chdir", libc::SYS_chdir, &[root]);
    }

    /// Unmounts what is mounted at a directory, and removes the directory.
    pub fn unmount(&mut self, path: CString) {
        let path = self.text(path);
        self.plain("unmount the old root", libc::SYS_umount2, &[path, libc::MNT_DETACH as usize]);
        self.plain("remove the old root", libc::SYS_rmdir, &[path]);
    }

    /// Sets a resource limit.
    pub fn limit(&mut self, name: &'static str, limit: ResourceLimit) {
        let value = self.keep(KernelLimit { soft: limit.value, hard: limit.value });
        self.plain(name, libc::SYS_prlimit64, &[0, limit.resource as usize, value, 0]);
    }

    /// Lowers its priority.
    pub fn be_nice(&mut self, nice: i32) {
        self.plain("nice", libc::SYS_setpriority, &[libc::PRIO_PROCESS as usize, 0, nice as usize]);
    }

    /// Gives up every capability that an exec could bring back. Needs `CAP_SETPCAP`.
    pub fn drop_bounding_set(&mut self, last_capability: u32) {
        for capability in 0..=last_capability as usize {
            let arguments = [libc::PR_CAPBSET_DROP as usize, capability];
            self.plain("drop the bounding set", libc::SYS_prctl, &arguments);
        }
        let arguments = [libc::PR_SET_SECUREBITS as usize, SECBIT_ALL_LOCKED_NO_ROOT];
        self.plain("lock the secure bits", libc::SYS_prctl, &arguments);
    }

    /// Becomes another user and group, without supplementary groups. Needs `CAP_SETUID` and
    /// `CAP_SETGID`.
    pub fn become_user(&mut self, user: u32) {
        let user = user as usize;
        self.plain("drop the groups", libc::SYS_setgroups, &[0, 0]);
        self.plain("change the group", libc::SYS_setresgid, &[user, user, user]);
        self.plain("change the user", libc::SYS_setresuid, &[user, user, user]);
    }

    /// Gives up every capability that it has.
    pub fn drop_capabilities(&mut self) {
        let arguments = [libc::PR_CAP_AMBIENT as usize, libc::PR_CAP_AMBIENT_CLEAR_ALL as usize];
        self.plain("drop the ambient capabilities", libc::SYS_prctl, &arguments);
        let header = self.keep(CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 });
        let none = self.keep([0_u32; 6]);
        self.plain("drop the capabilities", libc::SYS_capset, &[header, none]);
    }

    /// No exec raises privileges any more.
    pub fn no_new_privileges(&mut self) {
        self.plain("no_new_privs", libc::SYS_prctl, &[libc::PR_SET_NO_NEW_PRIVS as usize, 1]);
    }

    /// Restricts itself by a Landlock ruleset.
    pub fn restrict(&mut self, ruleset: RawFd) {
        self.plain("landlock_restrict_self", libc::SYS_landlock_restrict_self, &[ruleset as usize]);
    }

    /// Has a descriptor at another number, too; there it stays open at an exec unless
    /// `close_on_exec`.
    pub fn duplicate(&mut self, from: RawFd, to: RawFd, close_on_exec: bool) {
        let flags = if close_on_exec { libc::O_CLOEXEC as usize } else { 0 };
        self.plain("install a descriptor", libc::SYS_dup3, &[from as usize, to as usize, flags]);
    }

    /// Closes all descriptors from one number to another.
    pub fn close_range(&mut self, first: u32, last: u32) {
        self.plain(
            "close the other descriptors",
            libc::SYS_close_range,
            &[first as usize, last as usize, 0],
        );
    }

    /// Installs a seccomp filter, and tells the parent the listener's number. `wait_flag` is
    /// [`crate::seccomp::wait_flag`]. The filter must allow `futex`, and `exit_group`.
    pub fn install_filter(&mut self, filter: Vec<libc::sock_filter>, wait_flag: u32) {
        let instructions = u16::try_from(filter.len()).unwrap_or(0);
        let first = filter.as_ptr() as usize;
        self.kept.push(Box::new(filter));
        // As `struct sock_fprog`: a length of 16 bits, padding, a pointer.
        let program = self.keep([usize::from(instructions), first]);
        let flags = (crate::seccomp::NEW_LISTENER | wait_flag) as usize;
        let mode = crate::seccomp::SET_MODE_FILTER as usize;
        self.plain("install the filter", libc::SYS_seccomp, &[mode, flags, program]);
        self.push("hand the listener over", Item::Announce);
    }

    /// Becomes a program, given by a descriptor.
    pub fn execute(&mut self, program: RawFd, args: Vec<CString>, env: Vec<CString>) {
        let (args, env) = (self.vector(args), self.vector(env));
        let empty = self.text(CString::default());
        let flags = libc::AT_EMPTY_PATH as usize;
        self.plain("exec", libc::SYS_execveat, &[program as usize, empty, args, env, flags]);
    }

    /// Ends with status 0.
    pub fn exit(&mut self) {
        self.plain("exit", libc::SYS_exit_group, &[0]);
    }

    fn vector(&mut self, texts: Vec<CString>) -> usize {
        let mut pointers: Vec<usize> = texts.into_iter().map(|text| self.text(text)).collect();
        pointers.push(0);
        let first = pointers.as_ptr() as usize;
        self.kept.push(Box::new(pointers));
        first
    }
}

/// Blocks every signal of this thread until it is dropped.
struct Blocked(u64);

impl Blocked {
    fn new() -> io::Result<Blocked> {
        let mut before = 0;
        change_mask(u64::MAX, &mut before)?;
        Ok(Blocked(before))
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // It worked before, with the same pointers.
        let _ = change_mask(self.0, &mut 0);
    }
}

fn change_mask(to: u64, before: &mut u64) -> io::Result<()> {
    // The system call, not libc's function: that one leaves two signals unblocked, for its own use.
    // SAFETY: both sets have the kernel's size and are valid.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const to,
            std::ptr::from_mut(before),
            SIGNAL_SET_BYTES,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(&self.names).finish()
    }
}
