-- How wrk is used: with so many requests in one write as the first argument says, and with its figures
-- on one line at the end, in whole microseconds and without the rounding of what it prints itself.

function init(args)
   local depth = tonumber(args[1])
   if depth > 1 then
      local batch = string.rep(wrk.format(), depth)
      -- Without this function wrk writes a request that it has once made, which is faster.
      request = function() return batch end
   end
end

function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      "figures %d %d %d %d %d %d %d %d\n",
      summary.requests, summary.duration, latency:percentile(99.0),
      errors.connect, errors.read, errors.write, errors.timeout, errors.status))
end
