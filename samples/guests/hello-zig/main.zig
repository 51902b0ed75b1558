//! The `hello` guest in Zig: greets, and ends with the exit code that its last argument names.

const std = @import("std");

pub fn main(init: std.process.Init) !u8 {
    var buffer: [1024]u8 = undefined;
    var writer: std.Io.File.Writer = .init(.stdout(), init.io, &buffer);
    try writer.interface.print("Hello from Zig! {s}\n", .{init.environ_map.get("GREETING") orelse ""});
    try writer.interface.flush();

    const args = try init.minimal.args.toSlice(init.arena.allocator());
    return if (args.len < 2) 0 else std.fmt.parseInt(u8, args[args.len - 1], 10);
}
