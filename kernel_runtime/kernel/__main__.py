from kernel_runtime.kernel.app import main

main()
