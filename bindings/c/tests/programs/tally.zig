// An applet in Zig, over the header for C: it keeps a tally of names in its persistent heap.
//
//     add    counts a name; returns its count in decimal
//     fail   leaves a transaction open and fails
//     names  streams the names, latest first

const std = @import("std");
const holdfast = @cImport(@cInclude("holdfast_applet.h"));

const Entry = extern struct { next: ?*Entry, count: u64, length: u64, name: [64]u8 };
const Tally = extern struct { first: ?*Entry };

fn tally() ?*Tally {
    const found = holdfast.nvread("tally", null) orelse holdfast.nvmalloc("tally", @sizeOf(Tally));
    return @ptrCast(@alignCast(found));
}

fn input(call: ?*holdfast.holdfast_call) []const u8 {
    var size: usize = 0;
    const bytes: [*]const u8 = @ptrCast(holdfast.holdfast_input(call, &size));
    return bytes[0..size];
}

fn add(call: ?*holdfast.holdfast_call, _: ?*anyopaque) callconv(.C) c_int {
    const name = input(call);
    if (name.len > 64) return holdfast.holdfast_fail(call, "a name has at most 64 bytes");
    const all = tally() orelse return holdfast.holdfast_fail(call, holdfast.nv_message());
    if (holdfast.nv_tx_begin() != 0) return holdfast.holdfast_fail(call, holdfast.nv_message());
    var next = all.first;
    while (next) |entry| : (next = entry.next) {
        if (std.mem.eql(u8, entry.name[0..entry.length], name)) break;
    }
    const entry = next orelse made: {
        const object = holdfast.nvmalloc(null, @sizeOf(Entry));
        const entry: *Entry = @ptrCast(@alignCast(object orelse return holdfast.holdfast_fail(call, holdfast.nv_message())));
        entry.* = .{ .next = all.first, .count = 0, .length = name.len, .name = undefined };
        @memcpy(entry.name[0..name.len], name);
        _ = holdfast.nv_tx_add(all, @sizeOf(Tally));
        all.first = entry;
        break :made entry;
    };
    _ = holdfast.nv_tx_add(&entry.count, 8);
    entry.count += 1;
    if (holdfast.nv_tx_commit() != 0) return holdfast.holdfast_fail(call, holdfast.nv_message());
    var text: [20]u8 = undefined;
    const count = std.fmt.bufPrint(&text, "{d}", .{entry.count}) catch unreachable;
    return if (holdfast.holdfast_reply(call, count.ptr, count.len) == 0) 0 else 1;
}

fn fail(call: ?*holdfast.holdfast_call, _: ?*anyopaque) callconv(.C) c_int {
    const all = tally() orelse return 9;
    _ = holdfast.nv_tx_begin();
    _ = holdfast.nv_tx_add(all, @sizeOf(Tally));
    all.first = null;
    _ = holdfast.holdfast_fail(call, "as told");
    return 5;
}

fn names(call: ?*holdfast.holdfast_call, _: ?*anyopaque) callconv(.C) c_int {
    var next = (tally() orelse return 9).first;
    while (next) |entry| : (next = entry.next) {
        if (holdfast.holdfast_send(call, &entry.name, entry.length) != 0) return 1;
    }
    return 0;
}

pub fn main() u8 {
    _ = holdfast.holdfast_export("add", add, null);
    _ = holdfast.holdfast_export("fail", fail, null);
    _ = holdfast.holdfast_export("names", names, null);
    return @intCast(holdfast.holdfast_serve());
}
