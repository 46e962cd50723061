-- A request of a tenant's has ended: what it was booked with too much is given back, and what it used beyond is added.
-- One that was never booked here (second 0) is booked now, as so many seconds old.
local booked, age = tonumber(ARGV[4]), tonumber(ARGV[5])
local requests_add, requests_back, tokens_add, tokens_back =
  tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])

local function add(kind, second, count)
  if count <= 0 or second + 61 <= newest then return 0 end
  redis.call('HINCRBY', used, kind .. (second % 61), count)
  return count
end

local function take_back(kind, second, count)
  if count <= 0 or second + 61 <= newest then return 0 end
  local held = tonumber(redis.call('HGET', used, kind .. (second % 61)) or 0)
  local back = math.min(held, count)
  if back > 0 then redis.call('HINCRBY', used, kind .. (second % 61), -back) end
  return back
end

local since = now
if booked == 0 then since = now - age end
requests_sum = requests_sum + add('r', since, requests_add) - take_back('r', booked, requests_back)
tokens_sum = tokens_sum + add('t', since, tokens_add) - take_back('t', booked, tokens_back)
redis.call('HSET', used, 'newest', newest, 'requests', math.max(0, requests_sum), 'tokens', math.max(0, tokens_sum), 'born', born)
redis.call('EXPIRE', used, 90)

local known = redis.call('HGET', runs, replica)
local latest = known and tonumber(known:match('^%d+ (%d+) ')) or 0
if stamp >= latest then
  if running > 0 then
    redis.call('HSET', runs, replica, string.format('%d %d %d', running, stamp, now))
    redis.call('EXPIRE', runs, 90)
  else
    redis.call('HDEL', runs, replica)
  end
end
return {tonumber(born), math.max(0, requests_sum), math.max(0, tokens_sum)}
