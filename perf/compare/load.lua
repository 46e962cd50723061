-- One closed loop of POSTs for wrk: `wrk -s load.lua URL -- BODY_FILE VARIANTS FIRST`.
--
-- The file's `@@@@@@@@` becomes the number of a conversation, which goes round over VARIANTS, beginning after FIRST.
-- Few are made before the run, many on the way. The last line of the output is for the program that started wrk.

local head, before, after, variants
local made, next_one = {}, 0

local function build(n)
    return head .. before .. string.format("%08d", n) .. after
end

function init(args)
    local file = assert(io.open(args[1], "rb"))
    local body = file:read("*a")
    file:close()
    variants, next_one = tonumber(args[2]), tonumber(args[3])
    local at = assert(body:find("@@@@@@@@", 1, true))
    before, after = body:sub(1, at - 1), body:sub(at + 8)
    wrk.headers["Content-Type"] = "application/json"
    head = wrk.format("POST", wrk.path, wrk.headers, body)
    head = head:sub(1, #head - #body)
    if variants <= 64 then
        for n = 1, variants do made[n] = build(n) end
    end
end

function request()
    next_one = next_one % variants + 1
    return made[next_one] or build(next_one)
end

function done(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format("\nRESULT %d %d %d %d %d %d\n", summary.requests, summary.duration, latency:percentile(50),
        latency:percentile(99), errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
