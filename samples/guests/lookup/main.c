// A WASI preview 2 command: looks up the names it is given and prints their addresses, one line a
// name. With `--forever` first it stays and looks up again every five seconds.
#include <stdio.h>
#include <string.h>

#include "bindings/lookup.h"

static wasi_cli_stdout_own_output_stream_t out;

static void print(const char *text, size_t len) {
  lookup_list_u8_t bytes = {(uint8_t *)text, len};
  wasi_io_streams_stream_error_t error;
  wasi_io_streams_method_output_stream_blocking_write_and_flush(wasi_io_streams_borrow_output_stream(out), &bytes, &error);
}

static bool resolve(lookup_string_t *name) {
  char line[2048];
  int len = snprintf(line, sizeof line, "%.*s:", (int)name->len, (char *)name->ptr);
  wasi_sockets_instance_network_own_network_t network = wasi_sockets_instance_network_instance_network();
  wasi_sockets_ip_name_lookup_own_resolve_address_stream_t stream;
  wasi_sockets_ip_name_lookup_error_code_t error;
  bool found = false;
  if (wasi_sockets_ip_name_lookup_resolve_addresses(wasi_sockets_network_borrow_network(network), name, &stream, &error)) {
    wasi_io_poll_own_pollable_t ready =
        wasi_sockets_ip_name_lookup_method_resolve_address_stream_subscribe(wasi_sockets_ip_name_lookup_borrow_resolve_address_stream(stream));
    wasi_io_poll_method_pollable_block(wasi_io_poll_borrow_pollable(ready));
    wasi_io_poll_pollable_drop_own(ready);
    wasi_sockets_ip_name_lookup_option_ip_address_t next;
    while (wasi_sockets_ip_name_lookup_method_resolve_address_stream_resolve_next_address(
               wasi_sockets_ip_name_lookup_borrow_resolve_address_stream(stream), &next, &error) &&
           next.is_some && len < (int)sizeof line - 64) {
      found = true;
      if (next.val.tag == WASI_SOCKETS_NETWORK_IP_ADDRESS_IPV4) {
        wasi_sockets_network_ipv4_address_t a = next.val.val.ipv4;
        len += snprintf(line + len, sizeof line - len, " %d.%d.%d.%d", a.f0, a.f1, a.f2, a.f3);
      } else {
        wasi_sockets_network_ipv6_address_t a = next.val.val.ipv6;
        len += snprintf(line + len, sizeof line - len, " %x:%x:%x:%x:%x:%x:%x:%x", a.f0, a.f1, a.f2, a.f3, a.f4, a.f5, a.f6, a.f7);
      }
    }
    wasi_sockets_ip_name_lookup_resolve_address_stream_drop_own(stream);
  }
  wasi_sockets_network_network_drop_own(network);
  len += snprintf(line + len, sizeof line - len, found ? "\n" : " no such name (error %d)\n", error);
  print(line, len);
  return found;
}

bool exports_wasi_cli_run_run(void) {
  out = wasi_cli_stdout_get_stdout();
  lookup_list_string_t args;
  wasi_cli_environment_get_arguments(&args);
  size_t first = 1;
  bool forever = args.len > 1 && args.ptr[1].len == 9 && memcmp(args.ptr[1].ptr, "--forever", 9) == 0;
  if (forever) first++;
  bool all = true;
  do {
    for (size_t i = first; i < args.len; i++) all = resolve(&args.ptr[i]) && all;
    if (forever) {
      wasi_io_poll_own_pollable_t later = wasi_clocks_monotonic_clock_subscribe_duration(5000000000ull);
      wasi_io_poll_method_pollable_block(wasi_io_poll_borrow_pollable(later));
      wasi_io_poll_pollable_drop_own(later);
    }
  } while (forever);
  if (!all) {
    wasi_cli_exit_result_void_void_t failed = {.is_err = true};
    wasi_cli_exit_exit(&failed);
  }
  return true;
}
