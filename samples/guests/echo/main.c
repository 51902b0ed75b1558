// A WASI preview 2 command: a TCP server that sends back what it gets. The port is the last
// argument, 7000 unless given. One connection is served at a time.
#include <stdlib.h>
#include <string.h>

#include "bindings/echo.h"

static void say(const char *text) {
  wasi_cli_stdout_own_output_stream_t out = wasi_cli_stdout_get_stdout();
  echo_list_u8_t bytes = {(uint8_t *)text, strlen(text)};
  wasi_io_streams_stream_error_t error;
  wasi_io_streams_method_output_stream_blocking_write_and_flush(wasi_io_streams_borrow_output_stream(out), &bytes, &error);
  wasi_io_streams_output_stream_drop_own(out);
}

static uint16_t port(void) {
  echo_list_string_t args;
  wasi_cli_environment_get_arguments(&args);
  uint16_t port = 0;
  if (args.len > 1)
    for (size_t i = 0; i < args.ptr[args.len - 1].len; i++) port = port * 10 + (args.ptr[args.len - 1].ptr[i] - '0');
  return port ? port : 7000;
}

static void serve(wasi_sockets_tcp_tuple3_own_tcp_socket_own_input_stream_own_output_stream_t connection) {
  wasi_io_streams_borrow_input_stream_t in = wasi_io_streams_borrow_input_stream(connection.f1);
  wasi_io_streams_borrow_output_stream_t back = wasi_io_streams_borrow_output_stream(connection.f2);
  wasi_io_streams_stream_error_t error;
  echo_list_u8_t bytes;
  // blocking-write-and-flush takes at most 4,096 bytes at once.
  while (wasi_io_streams_method_input_stream_blocking_read(in, 4096, &bytes, &error)) {
    bool sent = wasi_io_streams_method_output_stream_blocking_write_and_flush(back, &bytes, &error);
    echo_list_u8_free(&bytes);
    if (!sent) break;
  }
  wasi_io_streams_input_stream_drop_own(connection.f1);
  wasi_io_streams_output_stream_drop_own(connection.f2);
  wasi_sockets_tcp_tcp_socket_drop_own(connection.f0);
}

bool exports_wasi_cli_run_run(void) {
  wasi_sockets_tcp_own_tcp_socket_t socket;
  wasi_sockets_tcp_error_code_t error;
  if (!wasi_sockets_tcp_create_socket_create_tcp_socket(WASI_SOCKETS_NETWORK_IP_ADDRESS_FAMILY_IPV4, &socket, &error)) return false;
  wasi_sockets_tcp_borrow_tcp_socket_t self = wasi_sockets_tcp_borrow_tcp_socket(socket);
  wasi_sockets_instance_network_own_network_t network = wasi_sockets_instance_network_instance_network();
  wasi_sockets_tcp_ip_socket_address_t address = {.tag = WASI_SOCKETS_NETWORK_IP_SOCKET_ADDRESS_IPV4};
  address.val.ipv4.port = port();
  if (!wasi_sockets_tcp_method_tcp_socket_start_bind(self, wasi_sockets_network_borrow_network(network), &address, &error) ||
      !wasi_sockets_tcp_method_tcp_socket_finish_bind(self, &error) || !wasi_sockets_tcp_method_tcp_socket_start_listen(self, &error) ||
      !wasi_sockets_tcp_method_tcp_socket_finish_listen(self, &error)) {
    say("cannot listen\n");
    return false;
  }
  say("listening\n");
  wasi_io_poll_own_pollable_t ready = wasi_sockets_tcp_method_tcp_socket_subscribe(self);
  for (;;) {
    wasi_sockets_tcp_tuple3_own_tcp_socket_own_input_stream_own_output_stream_t connection;
    if (wasi_sockets_tcp_method_tcp_socket_accept(self, &connection, &error))
      serve(connection);
    else
      wasi_io_poll_method_pollable_block(wasi_io_poll_borrow_pollable(ready));
  }
}
