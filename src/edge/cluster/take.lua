-- Takes one request from a tenant's limits, or says why not. One hash holds the last 61 seconds and their sums, as
-- routing/limits.rs has them for one replica; another who has requests running, as each replica last said.
local life = tonumber(ARGV[4])
local requests_max, tokens_max, running_max = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local tokens = tonumber(ARGV[8])
-- It has gone already, whatever the account says.
local is_forced = ARGV[9] == '1'

local others = 0
if running_max >= 0 then
  local all = redis.call('HGETALL', runs)
  for at = 1, #all, 2 do
    if all[at] ~= replica then
      local count, _, second = all[at + 1]:match('^(%d+) (%d+) (%d+)$')
      if second and tonumber(second) + life >= now then others = others + tonumber(count) end
    end
  end
end

local function free_in(kind, wanted)
  local freed = 0
  for second = newest - 60, newest do
    freed = freed + tonumber(redis.call('HGET', used, kind .. (second % 61)) or 0)
    if freed >= wanted then return second + 61 - now end
  end
  return 61
end

local over, wait = 0, 0
if tokens_max >= 0 then tokens = math.min(tokens, tokens_max) end
if is_forced then
  over = 0
elseif running_max >= 0 and others + running > running_max then
  over = 3
elseif requests_max >= 0 and requests_sum + 1 > requests_max then
  over, wait = 1, free_in('r', requests_sum + 1 - requests_max)
elseif tokens_max >= 0 and tokens_sum + tokens > tokens_max then
  over, wait = 2, free_in('t', tokens_sum + tokens - tokens_max)
end

if over == 0 then
  requests_sum, tokens_sum = requests_sum + 1, tokens_sum + tokens
  redis.call('HINCRBY', used, 'r' .. (now % 61), 1)
  redis.call('HINCRBY', used, 't' .. (now % 61), tokens)
  local known = redis.call('HGET', runs, replica)
  local latest = known and tonumber(known:match('^%d+ (%d+) ')) or 0
  if running_max >= 0 and stamp > latest then
    redis.call('HSET', runs, replica, string.format('%d %d %d', running, stamp, now))
    redis.call('EXPIRE', runs, 90)
  end
end
redis.call('HSET', used, 'newest', newest, 'requests', requests_sum, 'tokens', tokens_sum, 'born', born)
redis.call('EXPIRE', used, 90)
return {over, wait, newest, requests_sum, tokens_sum, others, tonumber(born)}
