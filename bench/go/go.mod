module sinew-bench-go

go 1.19
