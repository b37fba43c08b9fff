-- Makes wrk send as many requests in one write as the first argument says, and print its figures on
-- one line at the end. The times are in whole microseconds; wrk's own report rounds them.

function init(args)
   local depth = tonumber(args[1])
   if depth > 1 then
      local batch = string.rep(wrk.format(), depth)
      -- Without a function `request`, wrk writes one prepared request again and again, which is
      -- faster. So the function is defined only if it is needed.
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
