//! Answers in the shapes of real servers, shortened.

use std::collections::BTreeMap;

/// What a server answers with 200, by path.
#[derive(Clone)]
pub struct Server(BTreeMap<String, String>);

impl Server {
    fn of(answers: &[(&str, &str)]) -> Server {
        Server(answers.iter().map(|(path, body)| (path.to_string(), body.to_string())).collect())
    }

    pub fn body(&self, path: &str) -> Option<&[u8]> {
        self.0.get(path).map(|body| body.as_bytes())
    }

    pub fn and(&self, path: &str, body: &str) -> Server {
        let mut other = self.clone();
        other.0.insert(path.to_string(), body.to_string());
        other
    }

    pub fn without(&self, path: &str) -> Server {
        let mut other = self.clone();
        other.0.remove(path);
        other
    }
}

/// One server of each engine in the roster.
pub fn all() -> Vec<(&'static str, Server)> {
    vec![
        ("litellm", litellm()),
        ("llama_cpp", llama_cpp()),
        ("ollama", ollama()),
        ("openai", openai()),
        ("sglang", sglang()),
        ("vllm", vllm()),
    ]
}

pub fn ollama() -> Server {
    Server::of(&[
        ("/", "Ollama is running"),
        ("/api/version", r#"{"version":"0.33.0"}"#),
        ("/api/tags", super::TAGS),
        ("/api/ps", super::PS),
        ("/v1/models", r#"{"object":"list","data":[{"id":"moss:7b","object":"model","owned_by":"library"}]}"#),
    ])
}

pub fn openai() -> Server {
    Server::of(&[(
        "/v1/models",
        r#"{"object":"list","data":[{"id":"moss","object":"model","created":1,"owned_by":"somebody"}]}"#,
    )])
}

pub const LLAMA_CPP_PROPS: &str = r#"{"default_generation_settings":{"id":0,"n_ctx":4096,"params":{"n_predict":-1}},
  "total_slots":4,"model_path":"/models/moss-7b.gguf","modalities":{"vision":true,"audio":false},
  "build_info":"b9992-abc","is_sleeping":false}"#;

pub fn llama_cpp() -> Server {
    Server::of(&[
        ("/health", r#"{"status":"ok"}"#),
        ("/props", LLAMA_CPP_PROPS),
        (
            "/v1/models",
            r#"{"models":[{"name":"moss-7b.gguf","model":"moss-7b.gguf","size":"","capabilities":["completion"]}],
            "object":"list","data":[{"id":"moss-7b.gguf","aliases":[],"object":"model","created":1791322978,
            "owned_by":"llamacpp","meta":{"vocab_type":2,"n_ctx":8192,"n_ctx_train":131072,"size":4912898304}}]}"#,
        ),
        ("/metrics", LLAMA_CPP_METRICS),
    ])
}

pub const LLAMA_CPP_METRICS: &str = "\
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 4
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 46
llamacpp:predicted_tokens_seconds 31.5
";

pub fn llama_cpp_router() -> Server {
    Server::of(&[
        ("/health", r#"{"status":"ok"}"#),
        (
            "/props",
            r#"{"role":"router","max_instances":4,"models_autoload":true,"model_path":"none",
            "default_generation_settings":{"params":{},"n_ctx":0},"build_info":"b9992-abc"}"#,
        ),
        (
            "/v1/models",
            r#"{"object":"list","data":[
            {"id":"fern-3b","object":"model","owned_by":"llamacpp","status":{"value":"loaded","args":["llama-server"]}},
            {"id":"moss-7b","object":"model","owned_by":"llamacpp","status":{"value":"unloaded","args":[]}}]}"#,
        ),
    ])
}

pub fn vllm() -> Server {
    Server::of(&[
        ("/health", ""),
        ("/version", r#"{"version":"0.33.0"}"#),
        (
            "/v1/models",
            r#"{"object":"list","data":[
            {"id":"org/moss-7b","object":"model","created":1739421415,"owned_by":"vllm","root":"org/moss-7b",
             "parent":null,"max_model_len":32768,"permission":[{"id":"modelperm-1","is_blocking":false}]},
            {"id":"sql","object":"model","created":1739421415,"owned_by":"vllm","root":"org/sql-lora",
             "parent":"org/moss-7b","max_model_len":null}]}"#,
        ),
        ("/metrics", VLLM_METRICS),
    ])
}

pub const VLLM_METRICS: &str = r#"# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/moss-7b"} 5.0
vllm:num_requests_running{engine="1",model_name="org/moss-7b"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="org/moss-7b"} 2.0
vllm:num_requests_waiting{engine="1",model_name="org/moss-7b"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="org/moss-7b",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="org/moss-7b"} 0.25
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="org/moss-7b"} 0.0
"#;

pub fn sglang() -> Server {
    Server::of(&[
        ("/ready", ""),
        ("/model_info", r#"{"model_path":"org/moss-7b","tokenizer_path":"org/moss-7b","is_generation":true}"#),
        (
            "/v1/models",
            r#"{"object":"list","data":[{"id":"org/moss-7b","object":"model","created":1739421415,
            "owned_by":"sglang","root":"org/moss-7b","parent":null,"max_model_len":32768}]}"#,
        ),
        ("/v1/loads?include=core", SGLANG_LOADS),
        (
            "/server_info",
            r#"{"model_path":"org/moss-7b","max_running_requests":null,"internal_states":[
            {"last_gen_throughput":129.3,"effective_max_running_requests_per_dp":48},
            {"last_gen_throughput":120.0,"effective_max_running_requests_per_dp":48}],"version":"0.5.23"}"#,
        ),
        ("/metrics", SGLANG_METRICS),
    ])
}

pub const SGLANG_LOADS: &str = r#"{"timestamp":"2026-01-01T00:00:00Z","version":"0.5.23","loads":[
  {"dp_rank":0,"num_running_reqs":7,"num_waiting_reqs":1,"num_used_tokens":20,"max_running_requests":64},
  {"dp_rank":1,"num_running_reqs":2,"num_waiting_reqs":0,"num_used_tokens":24,"max_running_requests":64}]}"#;

pub const SGLANG_METRICS: &str = r#"# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",model_name="org/moss-7b",pp_rank="0",priority="",tp_rank="0"} 6.0
sglang:num_running_reqs{dp_rank="0",model_name="org/moss-7b",pp_rank="0",priority="1",tp_rank="0"} 4.0
sglang:num_running_reqs{dp_rank="0",model_name="org/moss-7b",pp_rank="0",priority="",tp_rank="1"} 6.0
sglang:num_running_reqs{dp_rank="1",model_name="org/moss-7b",pp_rank="0",priority="",tp_rank="2"} 1.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{dp_rank="0",model_name="org/moss-7b",pp_rank="0",priority="",tp_rank="0"} 3.0
sglang:token_usage{dp_rank="0",model_name="org/moss-7b"} 0.37
"#;

pub fn litellm() -> Server {
    Server::of(&[
        ("/health/liveliness", r#""I'm alive!""#),
        (
            "/v1/models",
            r#"{"data":[{"id":"chat","object":"model","created":1677610602,"owned_by":"openai"},
            {"id":"draft","object":"model","created":1677610602,"owned_by":"openai"}],"object":"list"}"#,
        ),
        (
            "/model/info",
            r#"{"data":[
            {"model_name":"chat","litellm_params":{"model":"azure/x"},"model_info":{"id":"1","max_input_tokens":128000}},
            {"model_name":"chat","litellm_params":{"model":"vllm/x"},"model_info":{"id":"2","max_input_tokens":32768}},
            {"model_name":"draft","litellm_params":{"model":"y"},"model_info":{"id":"3","max_input_tokens":null}}]}"#,
        ),
    ])
}
