"""One llama.cpp server with a small model on a free port of this machine.

Prints its address when it listens (the model may still be loading) and runs until it is ended.
"""

import signal
import sys

import xllamacpp

MODEL = "gemma3-270m"

# The packaged model file carries no template; these are the words that Gemma was trained with.
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<start_of_turn>{{ 'model' if message.role == 'assistant' else 'user' }}\n"
    "{{ message.content }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.model_alias = {MODEL}
    params.chat_template = TEMPLATE
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = 1
    params.n_ctx = 2048
    params.cpuparams.n_threads = 1
    params.use_jinja = True
    params.ui = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
