-- Something else stands where an account should: it is taken away.
for _, key in ipairs(KEYS) do
  if redis.call('TYPE', key)['ok'] ~= 'hash' then redis.call('DEL', key) end
end
return 1
