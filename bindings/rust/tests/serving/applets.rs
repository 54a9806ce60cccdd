//! The applets in Rust that run in the process that the host has started, by name.

use crate::host::ADDRESS;
use core::sync::atomic::{AtomicU64, Ordering};

use holdfast_channel::{CHANNEL_FD, REGION_FD};
use holdfast_guest::{
    AttachError, Call, Compartment, CompartmentHold, Durability, Failure, GrowError, Heap,
    HeapError, attach, attach_named, commit, export, seal, serve, serve_heap,
};

pub(crate) fn run(kind: &str) {
    match kind {
        "messages" => messages(),
        "heap" => heap(),
        "loader" => loader(),
        "alone" => alone(),
        "compartments" => compartments(),
        "first compartment" => first_compartment(),
        "taken" => taken(),
        "synchronous" => synchronous(),
        other => panic!("there is no applet {other}"),
    }
}

/// Functions without a heap.
fn messages() {
    export("echo", |call| Ok(call.reply(call.input())?)).unwrap();
    export("nothing", |_| Ok(())).unwrap();
    export("fail", |call| {
        Err(call.fail(7, format_args!("{} bytes are no good", call.input().len())))
    })
    .unwrap();
    export("error", |_| Err(std::io::Error::other("it did not work").into())).unwrap();
    export("late failure", |call| {
        call.send(b"one")?;
        call.reply(b"never seen")?;
        Err(Failure::new(-5, "it broke later"))
    })
    .unwrap();
    export("twice", |call| {
        call.reply(b"first")?;
        let refused = call.reply(b"second").unwrap_err();
        assert!(refused.to_string().contains("reply once"), "{refused}");
        Ok(())
    })
    .unwrap();
    export("panic", |_| panic!("as told")).unwrap();
    export("stream", stream).unwrap();
    export("wait", wait).unwrap();
    export("is cancelled", |call| Ok(call.reply(&[u8::from(call.is_cancelled())])?)).unwrap();
    export("reverse", reverse).unwrap();
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let calls = &CALLS;
    export("captured", move |call| {
        let count = calls.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(call.reply(&count.to_le_bytes())?)
    })
    .unwrap();
    assert_eq!(export("echo", |_| Ok(())), Err(holdfast_guest::ExportError::NameTaken));
    serve().unwrap();
    assert!(serve().unwrap_err().to_string().contains("serve once"));
    assert_eq!(export("late", |_| Ok(())), Err(holdfast_guest::ExportError::Serving));
}

fn stream(call: &mut Call) -> Result<(), Failure> {
    let count = u32::from_le_bytes(call.input().try_into()?);
    for number in 0..count {
        call.send(&number.to_le_bytes())?;
    }
    Ok(())
}

/// Until it is cancelled.
fn wait(call: &mut Call) -> Result<(), Failure> {
    call.send(b"waiting")?;
    while !call.is_cancelled() {
        std::hint::spin_loop();
    }
    Err(call.fail(9, "cancelled"))
}

fn reverse(call: &mut Call) -> Result<(), Failure> {
    let Some(buffer) = call.buffer() else { return Err(call.fail(2, "there is no buffer")) };
    let mut bytes = vec![0; buffer.len()];
    assert_eq!(buffer.read(0, &mut bytes), buffer.len());
    bytes.reverse();
    assert_eq!(buffer.write(0, &bytes), buffer.len());
    assert_eq!((buffer.read(buffer.len(), &mut bytes), buffer.write(usize::MAX, b"x")), (0, 0));
    Ok(())
}

fn counter(heap: &mut Heap) -> Result<*mut u64, HeapError> {
    let root = match heap.root("counter") {
        Some(root) => root.pointer,
        None => heap.create_root("counter", 8)?,
    };
    Ok(root.cast().as_ptr())
}

fn heap() {
    let heap = attach().unwrap();
    assert_eq!(attach().err(), Some(AttachError::AlreadyAttached));
    export("count", |call| {
        let counter = counter(call.heap()?)?;
        // SAFETY: the root has 8 bytes, and nothing else refers to it.
        let count = unsafe {
            *counter += 1;
            *counter
        };
        Ok(call.reply(&count.to_le_bytes())?)
    })
    .unwrap();
    export("read", |call| {
        let root = call.heap()?.root("counter").ok_or(HeapError::NoSuchRoot)?;
        // SAFETY: as above.
        let count = unsafe { *root.pointer.cast::<u64>().as_ptr() };
        Ok(call.reply(&count.to_le_bytes())?)
    })
    .unwrap();
    export("persist", |call| {
        let heap = call.heap()?;
        let root = heap.root("counter").ok_or(HeapError::NoSuchRoot)?;
        heap.persist(root.pointer.as_ptr(), 8)?;
        let outside = [0_u8; 8];
        assert_eq!(heap.persist(outside.as_ptr(), 8), Err(HeapError::OutsideHeap));
        let is_ordered = heap.is_ordered();
        Ok(call.reply(&[u8::from(is_ordered)])?)
    })
    .unwrap();
    export("count and fail", |call| {
        let heap = call.heap()?;
        heap.begin()?;
        let counter = counter(heap)?;
        heap.add_range(counter.cast(), 8)?;
        // SAFETY: as above.
        unsafe { *counter += 100 };
        heap.begin()?;
        heap.create_root("in vain", 100)?;
        Err(call.fail(3, "left open"))
    })
    .unwrap();
    export("names", |call| {
        let mut names: Vec<String> =
            call.heap()?.roots().map(|(name, _)| name.to_owned()).collect();
        names.sort();
        Ok(call.reply(names.join(",").as_bytes())?)
    })
    .unwrap();
    export("allocate", |call| {
        let bytes = u64::from_le_bytes(call.input().try_into()?);
        let object = call.heap()?.alloc(bytes)?;
        // SAFETY: just allocated with that many bytes.
        unsafe { object.as_ptr().write_bytes(7, bytes as usize) };
        Ok(())
    })
    .unwrap();
    export("churn", |call| {
        // Leaves the heap's volatile memory full of slabs and slots.
        let heap = call.heap()?;
        let objects: Vec<_> =
            (0..2000).map(|index| heap.alloc(16 + index % 500).unwrap()).collect();
        for object in objects.iter().step_by(2) {
            heap.free(*object)?;
        }
        let name = String::from_utf8(call.input().to_vec())?;
        call.heap()?.create_root(&name, 100)?;
        Ok(())
    })
    .unwrap();
    export("commit", |call| {
        let level = match call.input() {
            b"process" => Durability::Process,
            b"system" => Durability::System,
            _ => Durability::Power,
        };
        Ok(commit(level)?)
    })
    .unwrap();
    export("store", |call| {
        let start = call
            .heap()?
            .root("counter")
            .ok_or(HeapError::NoSuchRoot)?
            .pointer
            .cast::<u64>()
            .as_ptr();
        // SAFETY: as above; where the heap may only be read this ends the program.
        unsafe { start.write_volatile(1) };
        Ok(())
    })
    .unwrap();
    let heap = serve_heap(heap).unwrap();
    assert!(heap.usage().chunk_bytes > 0);
}

/// A program that does not serve.
fn loader() {
    let mut heap = attach().unwrap();
    // What it opens gets other numbers: the sandbox knows these.
    for number in [CHANNEL_FD, REGION_FD] {
        std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
    }
    seal().unwrap();
    let large = heap.create_root("large", 20 << 20).unwrap();
    // SAFETY: the root has this many bytes.
    unsafe { large.as_ptr().write_bytes(1, 20 << 20) };
    drop(heap);
    // It has grown since the program began.
    let mut heap = attach().unwrap();
    assert_eq!(heap.root("large").unwrap().pointer, large);
    let refused = heap.alloc(1 << 40).unwrap_err();
    let limit =
        matches!(refused, HeapError::OutOfMemory { cause: GrowError::LimitReached { .. }, .. });
    assert!(limit, "{refused}");
    commit(Durability::Power).unwrap();
}

/// Where the region belongs there is something already.
fn taken() {
    const BYTES: usize = 1 << 20;
    let place = (ADDRESS as usize + (8 << 20)) as *mut libc::c_void;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping, where nothing is.
    let mapped =
        unsafe { libc::mmap(place, BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_eq!(mapped, place);
    // SAFETY: mapped above, and nothing else refers to it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), BYTES) };
    bytes.fill(7);
    let refused = attach().err();
    assert_eq!(refused, Some(AttachError::MemoryShape));
    assert!(AttachError::MemoryShape.to_string().contains("attach before"));
    assert!(bytes.iter().all(|byte| *byte == 7));
    // The channel is there all the same.
    export("echo", |call| Ok(call.reply(call.input())?)).unwrap();
    serve().unwrap();
}

/// The host asks for a mapping that the region's file cannot have.
fn synchronous() {
    assert_eq!(attach().err(), Some(AttachError::NotSynchronous));
    assert!(AttachError::NotSynchronous.to_string().contains("holdfast doctor"));
    export("echo", |call| Ok(call.reply(call.input())?)).unwrap();
    serve().unwrap();
}

/// Threads enter compartments, and are refused what others have.
fn compartments() {
    let mut shared = attach().unwrap();
    shared.create_root("shared", 8).unwrap();
    assert_eq!(attach_named("heap+thread-1").err(), Some(AttachError::NotGranted));
    assert_eq!(Compartment::enter("thread-3").err(), Some(AttachError::NotGranted));
    assert_eq!(Compartment::enter("heap").err(), Some(AttachError::NotGranted));
    assert_eq!(Compartment::enter("").err(), Some(AttachError::NotGranted));
    let mut one = Compartment::enter("thread-1").unwrap();
    assert!(one.root("shared").is_none());
    let own = one.create_root("own", 8).unwrap();
    let large = one.create_root("large", 6 << 20).unwrap();
    assert_eq!(shared.free(own), Err(HeapError::NotAllocated));
    assert_eq!(Compartment::enter_any().err(), Some(AttachError::InCompartment));
    std::thread::spawn(|| {
        assert_eq!(Compartment::enter("heap+thread-1").err(), Some(AttachError::Held));
        let two = Compartment::enter_any().unwrap();
        assert_eq!((two.root("own").is_none(), two.backing().index()), (true, 2));
        std::thread::spawn(|| assert_eq!(Compartment::enter_any().err(), Some(AttachError::Held)))
            .join()
            .unwrap();
    })
    .join()
    .unwrap();
    one.begin().unwrap();
    assert_eq!(shared.begin(), Err(HeapError::OtherHeap));
    one.create_root("lost", 8).unwrap();
    one.leave();
    shared.begin().unwrap();
    assert_eq!(Compartment::enter("thread-1").err(), Some(AttachError::InTransaction));
    shared.abort().unwrap();
    // A thread that ends without leaving has left. The next thread often has its stack.
    for _ in 0..3 {
        std::thread::spawn(|| {
            let mut one = enter_when_left("thread-1");
            assert!(one.root("lost").is_none() && one.root("open").is_none());
            one.begin().unwrap();
            one.create_root("open", 8).unwrap();
            std::mem::forget(one);
        })
        .join()
        .unwrap();
    }
    std::thread::scope(|scope| {
        let begin = || {
            shared.begin().unwrap();
            shared.abort().unwrap();
        };
        scope.spawn(begin).join().unwrap();
    });
    let mut again = enter_when_left("thread-1");
    assert_eq!(again.root("own").unwrap().pointer, own);
    // It has grown since the program began.
    assert_eq!(again.root("large").unwrap().pointer, large);
    again.remove_root("large").unwrap();
    assert!(again.root("open").is_none());
    again.begin().unwrap();
    again.commit().unwrap();
    assert_eq!(again.is_closed_by_key(), holdfast_pkeys::is_offered());
}

/// The heap that was granted first is a compartment: it is attached or entered, and opened once.
fn first_compartment() {
    const TWICE: Option<AttachError> = Some(AttachError::AlreadyAttached);
    let entered = Compartment::enter_any().unwrap();
    assert_eq!(attach().err(), TWICE);
    entered.leave();
    let heap = attach().unwrap();
    assert_eq!(Compartment::enter_any().err(), TWICE);
    drop(heap);
    let hold = CompartmentHold::take(None).unwrap();
    let heap = hold.open().unwrap();
    assert_eq!(hold.open().err(), TWICE);
    drop(heap);
    drop(hold.open().unwrap());
}

/// The kernel may take a moment to end a thread that was joined.
fn enter_when_left(name: &str) -> Compartment {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        match Compartment::enter(name) {
            Err(AttachError::Held) if std::time::Instant::now() < until => {}
            entered => return entered.unwrap(),
        }
    }
}

/// No host has started it.
fn alone() {
    assert_eq!(attach().err(), Some(AttachError::NoHost));
    for text in [
        serve().unwrap_err().to_string(),
        seal().unwrap_err().to_string(),
        AttachError::NoHost.to_string(),
    ] {
        assert!(text.contains("run it with holdfast run"), "{text}");
    }
    assert!(matches!(commit(Durability::Power), Err(holdfast_guest::CommitError::Host(_))));
}
