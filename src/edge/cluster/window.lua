-- What comes before take.lua and settle.lua: the last 61 seconds of a tenant's, brought up to now.
-- The account tells when it began, so that replicas see that the one they know is gone.
local used, runs = KEYS[1], KEYS[2]
local replica, stamp, running = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1])

local head = redis.call('HMGET', used, 'newest', 'requests', 'tokens', 'born')
local newest, requests_sum, tokens_sum = tonumber(head[1] or now), tonumber(head[2] or 0), tonumber(head[3] or 0)
local born = head[4] or string.format('%.0f', now * 1000000 + tonumber(time[2]))
for second = newest + 1, math.max(newest, now) do
  if second > newest + 61 then break end
  local slot = second % 61
  local gone = redis.call('HMGET', used, 'r' .. slot, 't' .. slot)
  if gone[1] or gone[2] then
    requests_sum = math.max(0, requests_sum - tonumber(gone[1] or 0))
    tokens_sum = math.max(0, tokens_sum - tonumber(gone[2] or 0))
    redis.call('HDEL', used, 'r' .. slot, 't' .. slot)
  end
end
newest = math.max(newest, now)
