// A wasi:http component: answers every request with a greeting, the path, and the value of GREETING.
#include <string.h>

#include "bindings/web.h"

static void append(char *text, size_t *len, size_t max, const char *more, size_t more_len) {
  if (more_len > max - *len) more_len = max - *len;
  memcpy(text + *len, more, more_len);
  *len += more_len;
}

static void append_env(char *text, size_t *len, size_t max, const char *name) {
  web_list_tuple2_string_string_t env;
  wasi_cli_environment_get_environment(&env);
  for (size_t i = 0; i < env.len; i++) {
    if (env.ptr[i].f0.len == strlen(name) && memcmp(env.ptr[i].f0.ptr, name, env.ptr[i].f0.len) == 0)
      append(text, len, max, (char *)env.ptr[i].f1.ptr, env.ptr[i].f1.len);
  }
  web_list_tuple2_string_string_free(&env);
}

void exports_wasi_http_incoming_handler_handle(exports_wasi_http_incoming_handler_own_incoming_request_t request,
                                               exports_wasi_http_incoming_handler_own_response_outparam_t response_out) {
  char text[1024];
  size_t len = 0;
  append(text, &len, sizeof text, "Hello from WebAssembly! ", 24);
  append_env(text, &len, sizeof text, "GREETING");
  web_string_t path;
  if (wasi_http_types_method_incoming_request_path_with_query(wasi_http_types_borrow_incoming_request(request), &path)) {
    append(text, &len, sizeof text, (char *)path.ptr, path.len);
    web_string_free(&path);
  }
  append(text, &len, sizeof text, "\n", 1);

  wasi_http_types_own_fields_t headers = wasi_http_types_constructor_fields();
  wasi_http_types_own_outgoing_response_t response = wasi_http_types_constructor_outgoing_response(headers);
  wasi_http_types_own_outgoing_body_t body;
  wasi_http_types_method_outgoing_response_body(wasi_http_types_borrow_outgoing_response(response), &body);
  wasi_http_types_result_own_outgoing_response_error_code_t answer = {.is_err = false};
  answer.val.ok = response;
  wasi_http_types_static_response_outparam_set(response_out, &answer);

  wasi_http_types_own_output_stream_t stream;
  wasi_http_types_method_outgoing_body_write(wasi_http_types_borrow_outgoing_body(body), &stream);
  web_list_u8_t bytes = {(uint8_t *)text, len};
  wasi_io_streams_stream_error_t stream_error;
  wasi_io_streams_method_output_stream_blocking_write_and_flush(wasi_io_streams_borrow_output_stream(stream), &bytes, &stream_error);
  wasi_io_streams_output_stream_drop_own(stream);
  wasi_http_types_error_code_t error;
  wasi_http_types_static_outgoing_body_finish(body, NULL, &error);
  wasi_http_types_incoming_request_drop_own(request);
}
